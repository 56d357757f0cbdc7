/* Faults of a disk, one at a chosen call: a library that a process loads before the C library (LD_PRELOAD).

   It counts the calls that open, write, force to the disk, rename, remove or make what lies below one folder, in all
   threads together. faults_arm(folder, fault, when, seed) begins a count, and at call number `when`, or from it on, the
   fault happens. faults_kinds() is what the calls were, a letter each. Linux only; without a fault it changes nothing. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NONE, KILL, FULL, BROKEN, READONLY, SHORT, FSYNC, LOST, SHIFTED, ELSEWHERE };
enum { MOST = 100000, RING = 64 };

static char folder[PATH_MAX], kinds[MOST + 1];
static size_t length;
static int fault, when, seed;
static atomic_int armed, count, fired, written;
static atomic_int ring[RING]; /* files written before, each kept open, plus one */

void faults_arm(const char *path, int what, int at, int number) {
    armed = 0;
    strncpy(folder, path, sizeof folder - 1);
    length = strlen(folder), fault = what, when = at, seed = number;
    memset(kinds, 0, sizeof kinds);
    count = fired = written = 0;
    for (int k = 0; k < RING; k++) {
        int old = atomic_exchange(&ring[k], 0);
        if (old) close(old - 1);
    }
    armed = path[0] != 0;
}
int faults_count(void) { return count; }
int faults_fired(void) { return fired; }
const char *faults_kinds(void) { return kinds; }

static int below(const char *path) {
    return !strncmp(path, folder, length) && (path[length] == 0 || path[length] == '/');
}
static int below_fd(int fd) {
    char link[32], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t size = readlink(link, path, sizeof path - 1);
    return size > 0 && (path[size] = 0, below(path));
}
static int below_at(int fd, const char *path) {
    if (path[0] == '/') return below(path);
    if (fd != AT_FDCWD) return below_fd(fd);
    char here[PATH_MAX * 2];
    if (!getcwd(here, PATH_MAX)) return 0;
    strcat(strcat(here, "/"), path);
    return below(here);
}

/* What a call of a kind meets: 0 nothing, above 0 an errno, below 0 a fault of a write.
   Faults of one write or fsync meet the first from there on.
   r opens to read, o opens to write, w writes, s forces to the disk, m makes a folder, n renames, u removes, t cuts. */
static int meets(char kind) {
    int now = ++count;
    if (now <= MOST) kinds[now - 1] = kind;
    if (fault == NONE || now < when) return 0;
    if (fault == KILL && now == when) kill(getpid(), SIGKILL);
    int found = 0;
    if (fault == FULL && strchr("owmn", kind)) found = ENOSPC;
    if (fault == BROKEN) found = EIO;
    if (fault == READONLY && strchr("owmnut", kind)) found = EROFS;
    if (fault == FSYNC && !fired && kind == 's') found = EIO;
    if ((fault == SHORT || fault >= LOST) && !fired && kind == 'w') found = -fault;
    if (found) fired = 1;
    return found;
}

#define REAL(name) static __typeof__(name) *real; if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define FAILS(kind) do { int met = meets(kind); if (met > 0) { errno = met; return -1; } } while (0)

#define OPEN(name, head, fd, ...)                                                                                      \
    int name head {                                                                                                    \
        REAL(name);                                                                                                    \
        mode_t mode = 0;                                                                                               \
        if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) {                                                     \
            va_list rest; va_start(rest, flags); mode = va_arg(rest, mode_t); va_end(rest);                            \
        }                                                                                                              \
        if (armed && below_at(fd, path)) FAILS((flags & O_ACCMODE) == O_RDONLY ? 'r' : 'o');                           \
        return real(__VA_ARGS__, flags, mode);                                                                         \
    }
OPEN(open, (const char *path, int flags, ...), AT_FDCWD, path)
OPEN(open64, (const char *path, int flags, ...), AT_FDCWD, path)
OPEN(openat, (int fd, const char *path, int flags, ...), fd, fd, path)
OPEN(openat64, (int fd, const char *path, int flags, ...), fd, fd, path)

DIR *opendir(const char *path) {
    REAL(opendir);
    if (armed && below_at(AT_FDCWD, path)) {
        int met = meets('r');
        if (met > 0) return errno = met, NULL;
    }
    return real(path);
}

/* A write that is done as the disk does it: in part, not at all, at another place, or into another file. */
static ssize_t wrong(int how, int fd, const char *data, size_t size) {
    if (how == -SHORT) {
        REAL(write);
        return real(fd, data, size > 1 ? size / 2 : size);
    }
    if (how == -LOST) return size;
    REAL(pwrite);
    int to = -1;
    if (how == -ELSEWHERE)
        for (int k = 0; k < RING && to < 0; k++) to = ring[(seed + k) % RING] - 1;
    if (to >= 0) {
        if (real(to, data, size, 0) < 0) return size;
        return size;
    }
    off_t here = lseek(fd, 0, SEEK_CUR), past = 1 + seed % 4096;
    int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, flags & ~O_APPEND); /* with which pwrite appends */
    if (flags & O_APPEND) here = lseek(fd, 0, SEEK_END);
    if (real(fd, data, size, here + past) < 0) past = 0;
    lseek(fd, here + size, SEEK_SET);
    fcntl(fd, F_SETFL, flags);
    return size;
}
static void remember(int fd) {
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    int old = atomic_exchange(&ring[written++ % RING], copy < 0 ? 0 : copy + 1);
    if (old) close(old - 1);
}
ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    if (!armed || !below_fd(fd)) return real(fd, data, size);
    int met = meets('w');
    if (met > 0) return errno = met, -1;
    if (met < 0) return wrong(met, fd, data, size);
    if (fault == ELSEWHERE) remember(fd);
    return real(fd, data, size);
}
ssize_t writev(int fd, const struct iovec *parts, int number) {
    REAL(writev);
    if (!armed || !below_fd(fd)) return real(fd, parts, number);
    int met = meets('w');
    if (met > 0) return errno = met, -1;
    if (met < 0) {
        size_t size = 0;
        for (int k = 0; k < number; k++) size += parts[k].iov_len;
        char *data = malloc(size + 1), *end = data;
        for (int k = 0; k < number; k++) end = mempcpy(end, parts[k].iov_base, parts[k].iov_len);
        ssize_t done = wrong(met, fd, data, size);
        free(data);
        return done;
    }
    if (fault == ELSEWHERE) remember(fd);
    return real(fd, parts, number);
}
#define PWRITE(name, type)                                                                                             \
    ssize_t name(int fd, const void *data, size_t size, type at) {                                                     \
        REAL(name);                                                                                                    \
        int met = armed && below_fd(fd) ? meets('w') : 0;                                                              \
        if (met > 0) return errno = met, -1;                                                                           \
        if (met == -SHORT) return real(fd, data, size > 1 ? size / 2 : size, at);                                      \
        if (met == -LOST) return size;                                                                                 \
        return real(fd, data, size, met < 0 ? at + 1 + seed % 4096 : at);                                              \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define ON_FD(name, head, kind, ...)                                                                                   \
    int name head {                                                                                                    \
        REAL(name);                                                                                                    \
        if (armed && below_fd(fd)) FAILS(kind);                                                                        \
        return real(__VA_ARGS__);                                                                                      \
    }
ON_FD(fsync, (int fd), 's', fd)
ON_FD(fdatasync, (int fd), 's', fd)
ON_FD(ftruncate, (int fd, off_t size), 't', fd, size)
ON_FD(ftruncate64, (int fd, off64_t size), 't', fd, size)

#define ON_PATH(name, head, fd, kind, ...)                                                                             \
    int name head {                                                                                                    \
        REAL(name);                                                                                                    \
        if (armed && below_at(fd, path)) FAILS(kind);                                                                  \
        return real(__VA_ARGS__);                                                                                      \
    }
ON_PATH(unlink, (const char *path), AT_FDCWD, 'u', path)
ON_PATH(unlinkat, (int fd, const char *path, int flags), fd, 'u', fd, path, flags)
ON_PATH(rmdir, (const char *path), AT_FDCWD, 'u', path)
ON_PATH(mkdir, (const char *path, mode_t mode), AT_FDCWD, 'm', path, mode)
ON_PATH(mkdirat, (int fd, const char *path, mode_t mode), fd, 'm', fd, path, mode)
ON_PATH(truncate, (const char *path, off_t size), AT_FDCWD, 't', path, size)
ON_PATH(rename, (const char *path, const char *to), AT_FDCWD, 'n', path, to)
ON_PATH(renameat, (int fd, const char *path, int tofd, const char *to), fd, 'n', fd, path, tofd, to)
ON_PATH(renameat2, (int fd, const char *path, int tofd, const char *to, unsigned flags), fd, 'n', fd, path, tofd, to, flags)
