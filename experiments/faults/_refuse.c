/* A disk that cannot do some things: a library that a process loads before the C library (LD_PRELOAD).

   REFUSED names them, below the folder REFUSED_BELOW: link (symbolic links), rename (of folders), lock (flock), append
   (files opened to append), fsync (of files and folders), force (fsync of folders). Linux only. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define REAL(name) ({ static typeof(&name) found; if (!found) found = dlsym(RTLD_NEXT, #name); found; })

static int refused(const char *what, const char *path) {
    const char *all = getenv("REFUSED"), *below = getenv("REFUSED_BELOW");
    if (!all || !below || !strstr(all, what)) return 0;
    char whole[PATH_MAX * 2] = "";
    if (path[0] != '/' && getcwd(whole, PATH_MAX)) strcat(whole, "/");
    strncat(whole, path, PATH_MAX - 1);
    return !strncmp(whole, below, strlen(below));
}
static int refused_fd(const char *what, int fd) {
    char link[32], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    return size > 0 && (path[size] = 0, refused(what, path));
}
#define NO(condition, number) if (condition) return errno = number, -1

int symlink(const char *to, const char *path) {
    NO(refused("link", path), EPERM);
    return REAL(symlink)(to, path);
}
int symlinkat(const char *to, int fd, const char *path) {
    NO(refused("link", path), EPERM);
    return REAL(symlinkat)(to, fd, path);
}
static int of_folder(const char *path) {
    struct stat found;
    return refused("rename", path) && !lstat(path, &found) && S_ISDIR(found.st_mode);
}
int rename(const char *path, const char *to) {
    NO(of_folder(path), EPERM);
    return REAL(rename)(path, to);
}
int renameat(int fd, const char *path, int to_fd, const char *to) {
    NO(of_folder(path), EPERM);
    return REAL(renameat)(fd, path, to_fd, to);
}
int flock(int fd, int operation) {
    NO(refused_fd("lock", fd), ENOLCK);
    return REAL(flock)(fd, operation);
}
static int unforced(int fd) {
    struct stat found;
    return refused_fd("fsync", fd) || (refused_fd("force", fd) && !fstat(fd, &found) && S_ISDIR(found.st_mode));
}
int fsync(int fd) {
    NO(unforced(fd), EINVAL);
    return REAL(fsync)(fd);
}
int fdatasync(int fd) {
    NO(unforced(fd), EINVAL);
    return REAL(fdatasync)(fd);
}
#define OPEN(name)                                                                                                     \
    int name(const char *path, int flags, ...) {                                                                       \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = va_arg(rest, int);                                                                               \
        va_end(rest);                                                                                                  \
        NO((flags & O_APPEND) && refused("append", path), EOPNOTSUPP);                                                 \
        return REAL(name)(path, flags, mode);                                                                          \
    }
OPEN(open)
OPEN(open64)
