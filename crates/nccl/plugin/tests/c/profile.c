/* Plays NCCL's part for the profiler: profile LIBRARY VERSION SCENE. Calls come in the order of NCCL 2.30.7 (hostStreamPlanTask in
 * src/enqueue.cc, sendProxyProgress and recvProxyProgress in src/transport/net.cc, src/transport/profiler.cc), translated to older
 * versions as src/plugin/profiler/profiler_v*.cc do. Prints the mask after each init. */
#include "nccl_profiler.h"
#include "player.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { STEPS = 4, SPINS = 1000, THREADS = 4, OF_THREAD = 2000 };

static union {
  profiler_v1 *v1;
  profiler_v2 *v2;
  profiler_v3 *v3;
  profiler_v4 *v4;
  profiler_v5 *v5;
  profiler_v6 *v6;
} table;
static int version, mask;

static void *init(int rank) {
  void *context = NULL;
  mask = -1;
  switch (version) {
    case 1: OK(table.v1->init(&context, &mask)); break;
    case 2: OK(table.v2->init(&context, &mask)); break;
    case 3: OK(table.v3->init(&context, &mask)); break;
    case 4: OK(table.v4->init(&context, &mask, "dp", 4711, 2, 4, rank, logger)); break;
    case 5: OK(table.v5->init(&context, 4711, &mask, "dp", 2, 4, rank, logger)); break;
    default: OK(table.v6->init(&context, 4711, &mask, NULL, 2, 4, rank, logger));
  }
  return context;
}

/* Hands an event on as NCCL does to an older plugin; the tables agree from stopEvent on. */
static void *start(void *context, descr_v6 *d) {
  void *handle = NULL;
#define COMMON(o) (o).type = d->type, (o).parentObj = d->parentObj, (o).rank = d->rank
#define SAME(o, member) memcpy(&(o).member, &d->member, sizeof (o).member)
#define OPERATION(o) \
  case COLL: \
    (o).parentObj = d->coll.parentGroup, (o).coll.seqNumber = d->coll.seqNumber, (o).coll.func = d->coll.func; \
    (o).coll.count = d->coll.count, (o).coll.root = d->coll.root, (o).coll.datatype = d->coll.datatype; \
    (o).coll.nChannels = d->coll.nChannels, (o).coll.algo = d->coll.algo, (o).coll.proto = d->coll.proto; \
    break; \
  case P2P: \
    (o).parentObj = d->p2p.parentGroup, (o).p2p.func = d->p2p.func, (o).p2p.datatype = d->p2p.datatype; \
    (o).p2p.count = d->p2p.count, (o).p2p.peer = d->p2p.peer; \
    break; \
  case PROXY_OP: SAME(o, proxyOp); break; \
  case PROXY_STEP: SAME(o, proxyStep); break
  switch (version) {
    case 1: {
      descr_v1 o = {0};
      COMMON(o);
      switch (d->type) {
        case COLL:
          o.coll.func = !strcmp(d->coll.func, "AllReduce") ? 4 : 2, o.coll.count = d->coll.count, o.coll.datatype = 7;
          o.coll.nMaxChannels = d->coll.nChannels, o.coll.algo = 1, o.coll.proto = 2;
          break;
        case P2P: o.p2p.func = 6, o.p2p.datatype = 7, o.p2p.count = d->p2p.count, o.p2p.peer = d->p2p.peer; break;
        case PROXY_OP: SAME(o, proxyOp); break;
        case PROXY_STEP: SAME(o, proxyStep); break;
        case GROUP: break;
        default: return NULL;
      }
      OK(table.v1->startEvent(context, &handle, &o));
      break;
    }
    case 2: {
      descr_v2 o = {0};
      COMMON(o);
      switch (d->type) {
        OPERATION(o);
        case GROUP: break;
        default: return NULL;
      }
      OK(table.v2->startEvent(context, &handle, &o));
      break;
    }
    case 3: {
      descr_v3 o = {0};
      COMMON(o);
      switch (d->type) {
        OPERATION(o);
        case GROUP: break;
        case KERNEL_CH: o.kernelCh.channelId = d->kernelCh.channelId; break;
        default: return NULL;
      }
      OK(table.v3->startEvent(context, &handle, &o));
      break;
    }
    case 4: {
      /* NCCL does not clear this one either. */
      descr_v4 o;
      memset(&o, 0xaa, sizeof o);
      COMMON(o);
      switch (d->type) {
        OPERATION(o);
        case GROUP: break;
        case KERNEL_CH: SAME(o, kernelCh); break;
        case NET_PLUGIN: SAME(o, netPlugin); break;
        default: return NULL;
      }
      OK(table.v4->startEvent(context, &handle, &o));
      break;
    }
    case 5: OK(table.v5->startEvent(context, &handle, (descr_v5 *)d)); break;
    default: OK(table.v6->startEvent(context, &handle, d));
  }
  return handle;
}

static void state(void *handle, int number, state_args arguments) {
  if (!handle || (version < 4 && number > RECV_GPU_WAIT)) return;
  OK(table.v6->recordEventState(handle, number, &arguments));
}

static void stop(void *handle) {
  if (handle) OK(table.v6->stopEvent(handle));
}

static void step(void *context, void *operation, int number, int send) {
  descr_v6 d = {.type = PROXY_STEP, .parentObj = operation, .proxyStep = {number}};
  void *handle = start(context, &d);
  state_args bytes = {.proxyStep = {65536}};
  if (send) {
    state(handle, SEND_GPU_WAIT, bytes);
    /* As often as the network takes nothing. */
    for (int i = 0; i < SPINS; i++) state(handle, SEND_PEER_WAIT, bytes);
    state(handle, SEND_WAIT, bytes);
  } else {
    state(handle, RECV_WAIT, bytes);
    state(handle, RECV_FLUSH_WAIT, bytes);
    state(handle, RECV_GPU_WAIT, bytes);
  }
  stop(handle);
}

static void proxy(void *context, void *parent, pid_t pid, int send) {
  descr_v6 d = {.type = PROXY_OP, .parentObj = parent, .proxyOp = {pid, 1, send ? 2 : 3, STEPS, 65536, send}};
  void *handle = start(context, &d);
  state(handle, PROXY_OP_IN_PROGRESS, (state_args){0});
  for (int i = 0; i < STEPS; i++) step(context, handle, i, send);
  stop(handle);
}

/* The application's call; its handle is a stale one where a graph is replayed. */
static void *call(void *context, bool captured) {
  descr_v6 d = {.type = COLL_API, .collApi = {"AllReduce", 1024, "ncclFloat32", 0, NULL, captured}};
  void *handle = start(context, &d);
  stop(handle);
  return handle;
}

/* What runs when the plan does: at once, or each time that a graph is replayed. */
static void plan(void *context, void *api, int parts) {
  descr_v6 group = {.type = GROUP};
  void *of_group = start(context, &group);
  descr_v6 d = {.type = COLL, .parentObj = api, .rank = 1};
  d.coll.seqNumber = 5, d.coll.func = "AllReduce", d.coll.count = 1024, d.coll.datatype = "ncclFloat32";
  d.coll.nChannels = 2, d.coll.algo = "RING", d.coll.proto = "SIMPLE", d.coll.parentGroup = of_group;
  void *handle = start(context, &d);
  /* It is queued: that is when NCCL says it has stopped. */
  stop(handle);
  stop(of_group);
  if (!parts) return;
  descr_v6 kernel = {.type = KERNEL_CH, .parentObj = handle, .kernelCh = {1, 1000}};
  void *of_kernel = start(context, &kernel);
  proxy(context, handle, getpid(), 1);
  proxy(context, handle, getpid(), 0);
  state(of_kernel, KERNEL_CH_STOP, (state_args){.kernelCh = {2000}});
  stop(of_kernel);
}

static void job(void) {
  void *first = init(1);
  printf("%d\n", mask);
  void *second = init(2);
  printf("%d\n", mask);
  if (!mask) return;
  plan(first, call(first, false), 1);
  /* Captured once, and replayed three times. */
  void *captured = call(second, true);
  for (int i = 0; i < 3; i++) plan(second, captured, 1);
  descr_v6 d = {.type = P2P, .rank = 1};
  d.p2p.func = "Send", d.p2p.count = 256, d.p2p.datatype = "ncclFloat32", d.p2p.peer = 2;
  stop(start(first, &d));
  /* For a GPU of another process: its handle, which means nothing here. */
  proxy(first, (void *)0x7f0000001233, 4711, 1);
  /* What this plugin does not know, and what it is not asked for. */
  descr_v6 unknown = {.type = 1 << 20};
  CHECK(!start(first, &unknown), "a handle of nothing");
  descr_v6 odd = {.type = COLL};
  odd.coll.func = "Unknown", odd.coll.datatype = NULL, odd.coll.algo = NULL, odd.coll.proto = NULL;
  if (version > 1) CHECK(!start(first, &odd), "a handle of nothing");
  OK(table.v6->stopEvent(NULL));
  OK(table.v6->recordEventState(NULL, SEND_WAIT, NULL));
  OK(table.v6->startEvent(first, NULL, NULL));
  pid_t child = fork();
  if (child == 0) {
    plan(first, NULL, 1);
    _exit(0);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the child of a fork ended with %d", status);
  OK(table.v6->finalize(first));
  OK(table.v6->finalize(first));
  OK(table.v6->finalize(NULL));
  void *third = init(3);
  printf("%d\n", mask);
  plan(third, NULL, 0);
  OK(table.v6->finalize(third));
  OK(table.v6->finalize(second));
}

static void *many(void *context) {
  for (int i = 0; i < OF_THREAD; i++) plan(context, NULL, 1);
  return NULL;
}

/* More than a ring holds, from several threads. */
static void flood(void) {
  void *context = init(0);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, many, context);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  OK(table.v6->finalize(context));
}

static void *profiled;

/* As ncclProfilerCallback in src/plugin/profiler.cc. */
static result_t callback(void **event, int kind, void *parent, int64_t plugin, void *data) {
  descr_v6 d = {.type = NET_PLUGIN, .parentObj = parent, .netPlugin = {plugin, data}};
  if (kind == 0) *event = start(profiled, &d);
  if (kind == 1) stop(*event);
  return SUCCESS;
}

/* A message over the network of the same library, for a step. */
static void network(void *library) {
  profiled = init(0);
  net_v12 *net = dlsym(library, "ncclNetPlugin_v12");
  CHECK(net, "ncclNetPlugin_v12");
  config_t config = {TRAFFIC_CLASS_UNDEF};
  void *context, *listener, *sender = NULL, *receiver = NULL, *offload = NULL, *sent = NULL, *received = NULL;
  char handle[HANDLE_BYTES], from[5000] = {1}, to[5000];
  OK(net->init(&context, 4711, &config, logger, callback));
  OK(net->listen(context, 0, handle, &listener));
  while (!sender || !receiver) {
    if (!sender) OK(net->connect(context, 0, handle, &sender, &offload));
    if (!receiver) OK(net->accept(listener, &receiver, &offload));
  }
  descr_v6 d = {.type = PROXY_STEP, .parentObj = NULL, .proxyStep = {0}};
  void *step = start(profiled, &d), *room = to, *registration = NULL, *none = NULL;
  size_t size = sizeof to;
  int tag = 0, done = 0;
  while (!received) OK(net->irecv(receiver, 1, &room, &size, &tag, &registration, &none, &received));
  while (!sent) OK(net->isend(sender, from, sizeof from, tag, NULL, step, &sent));
  while (!done) OK(net->test(sent, &done, NULL));
  for (done = 0; !done;) OK(net->test(received, &done, NULL));
  stop(step);
  OK(net->closeSend(sender));
  OK(net->closeRecv(receiver));
  OK(net->closeListen(listener));
  OK(net->finalize(context));
  OK(table.v6->finalize(profiled));
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

/* By hand: "cost" prints nanoseconds per event, "rate" plays a million events each second for a minute. */
static void cost(int paced) {
  void *context = init(0);
  double begun = now(), busy = 0, least = 1;
  long events = 0;
  while (now() - begun < (paced ? 60 : 0.02)) {
    double since = now();
    for (int i = 0; i < 1000; i++) {
      descr_v6 d = {.type = PROXY_STEP, .parentObj = (void *)0x24, .proxyStep = {i}};
      void *handle = start(context, &d);
      state(handle, SEND_GPU_WAIT, (state_args){0});
      state(handle, SEND_PEER_WAIT, (state_args){0});
      state(handle, SEND_WAIT, (state_args){0});
      stop(handle);
    }
    events += 5000;
    double took = now() - since;
    busy += took, least = took < least ? took : least;
    while (paced && (now() - begun) * 1e6 < events) {}
  }
  printf("%.1f ns per event, %.1f where nobody else had the core; %ld events\n", busy / events * 1e9, least / 5000 * 1e9, events);
  OK(table.v6->finalize(context));
}

int main(int count, char **words) {
  CHECK(count == 4, "profile LIBRARY VERSION SCENE");
  version = atoi(words[2]);
  void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  CHECK(library, "%s", dlerror());
  char symbol[32];
  snprintf(symbol, sizeof symbol, "ncclProfiler_v%d", version);
  table.v6 = dlsym(library, symbol);
  CHECK(table.v6 && strcmp(table.v6->name, "busbw") == 0, "%s", symbol);
  if (!strcmp(words[3], "job")) job();
  if (!strcmp(words[3], "flood")) flood();
  if (!strcmp(words[3], "network")) network(library);
  if (!strcmp(words[3], "cost")) cost(0);
  if (!strcmp(words[3], "rate")) cost(1);
  return 0;
}
