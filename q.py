import os,sys,time,threading
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL","2")
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import *
from jax.experimental import multihost_utils as mh
addr,n,i,mode=sys.argv[1],int(sys.argv[2]),int(sys.argv[3]),sys.argv[4]
jax.config.update("jax_enable_recoverability",True)
T0=time.time()
def log(*a): print(i,round(time.time()-T0,1),*a,flush=True)
jax.distributed.initialize(addr,n,i,initialization_timeout=60,heartbeat_timeout_seconds=10, coordinator_bind_address=addr)
log("joined"); log(mh.process_allgather(np.int32(i)))
together=True
def watch():
    while together:
        try:
            with mh.live_devices(jax.devices()) as alive: n=len(alive)
        except Exception as e:
            log("watch", type(e), str(e)[:300]); n=0
        if n<len(jax.devices()) and together:
            log("LOST", n); os._exit(9)
        time.sleep(1)
threading.Thread(target=watch,daemon=True).start()
mesh=Mesh(np.array(jax.devices()),("d",))
state={"key":jax.random.key(3),"x":jnp.arange(8.0)}
rep=NamedSharding(mesh,PartitionSpec()); spl=NamedSharding(mesh,PartitionSpec("d"))
try:
    s=jax.device_put(state,rep); log("device_put rep ok")
except Exception as e: log("put",e)
try:
    f=lambda leaf: jax.make_array_from_callback(leaf.shape,rep,lambda ix: leaf[ix])
    s=jax.tree.map(f,state); log("callback ok")
except Exception as e: log("cb",type(e),e)
try:
    s=jax.device_put(jax.random.split(jax.random.key(3),4), spl); log("split",s.sharding)
    s=jax.block_until_ready(jax.device_put({"a":s,"b":jax.device_put(jnp.arange(8.),spl)},rep)); log("gather", jax.tree.map(lambda l:l.addressable_shards[0].data,s))
except Exception as e: log("put2",type(e),str(e)[:300])
t=time.time()
for _ in range(20): mh.process_allgather(np.int32(i))
log("20 allgathers",time.time()-t)
if mode=="end":
    together=False
    if i==1: os._exit(0)
    time.sleep(25); log("still here"); os._exit(0)
if mode=="die1":
    if i==1: time.sleep(1); os.kill(os.getpid(),9)
    time.sleep(60)
if mode=="die0":
    if i==0: time.sleep(1); os.kill(os.getpid(),9)
    time.sleep(60)
if mode=="stop1":
    if i==1: time.sleep(1); os.kill(os.getpid(),19)
    mh.process_allgather(np.int32(i))
