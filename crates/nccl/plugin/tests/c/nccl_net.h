/* NCCL's network plugin interface, versions 6 to 12, written down for the tests from what NCCL's sources say of it. It
 * repeats what crates/nccl/abi says in Rust, so that a C compiler's layout can be held against that one. */
#pragma once
#include <stddef.h>
#include <stdint.h>

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6 };
enum { LOG_WARN = 2, LOG_INFO = 3 };
enum { HANDLE_BYTES = 128, REQUESTS = 32, PTR_HOST = 1, PTR_CUDA = 2, TRAFFIC_CLASS_UNDEF = -1 };
#define OPTIONAL_RECV_COMPLETION ((void *)0x1)

typedef int result_t;
typedef void (*logger_t)(int level, unsigned long flags, const char *file, int line, const char *format, ...);
typedef result_t (*profiler_t)(void **event, int kind, void *parent, int64_t plugin, void *data);

typedef struct {
  int trafficClass;
} config_t;

typedef struct {
  int32_t maxConcurrentPeers, minConcurrentPeers, maxFlowsPerPeer, minFlowsPerPeer;
} side_t;

typedef struct {
  side_t send, recv;
  uint32_t op, algo, proto;
} attributes_t;

typedef struct {
  int ndevs;
  int devs[4];
} vdevice4_t;

typedef struct {
  int ndevs;
  int devs[8];
} vdevice8_t;

#define PROPERTIES_HEAD char *name, *pciPath; uint64_t guid; int ptrSupport
#define PROPERTIES_TAIL int speed, port; float latency; int maxComms, maxRecvs

typedef struct {
  PROPERTIES_HEAD;
  PROPERTIES_TAIL;
} properties_v6;

typedef struct {
  PROPERTIES_HEAD;
  PROPERTIES_TAIL;
  int netDeviceType, netDeviceVersion;
} properties_v7;

typedef struct {
  PROPERTIES_HEAD;
  int regIsGlobal;
  PROPERTIES_TAIL;
  int netDeviceType, netDeviceVersion;
} properties_v8;

typedef struct {
  PROPERTIES_HEAD;
  int regIsGlobal, forceFlush;
  PROPERTIES_TAIL;
  int netDeviceType, netDeviceVersion;
  vdevice4_t vProps;
  size_t maxP2pBytes, maxCollBytes;
} properties_v9;

typedef properties_v9 properties_v10;

typedef struct {
  PROPERTIES_HEAD;
  int regIsGlobal, forceFlush;
  PROPERTIES_TAIL;
  int netDeviceType, netDeviceVersion;
  vdevice4_t vProps;
  size_t maxP2pBytes, maxCollBytes;
  int maxMultiRequestSize;
} properties_v11;

typedef struct {
  PROPERTIES_HEAD;
  int regIsGlobal, forceFlush;
  PROPERTIES_TAIL;
  int netDeviceType, netDeviceVersion;
  vdevice8_t vProps;
  size_t maxP2pBytes, maxCollBytes;
  int maxMultiRequestSize;
  int16_t railId, planeId;
} properties_v12;

/* The tables. Members come in NCCL's order; each macro is a run of members that versions share. */
#define INIT_PLAIN result_t (*init)(logger_t)
#define INIT_PROFILED result_t (*init)(logger_t, profiler_t)
#define INIT_CONTEXT result_t (*init)(void **, uint64_t, config_t *, logger_t, profiler_t)
#define QUERIES(version) result_t (*devices)(int *); result_t (*getProperties)(int, properties_v##version *)
#define LISTEN result_t (*listen)(int, void *, void **)
#define LISTEN_CONTEXT result_t (*listen)(void *, int, void *, void **)
#define CONNECT result_t (*connect)(int, void *, void **)
#define CONNECT_OFFLOAD result_t (*connect)(int, void *, void **, void **)
#define CONNECT_CONFIG result_t (*connect)(int, config_t *, void *, void **, void **)
#define CONNECT_CONTEXT result_t (*connect)(void *, int, void *, void **, void **)
#define ACCEPT result_t (*accept)(void *, void **)
#define ACCEPT_OFFLOAD result_t (*accept)(void *, void **, void **)
#define MEMORY(size) \
  result_t (*regMr)(void *, void *, size, int, void **); \
  result_t (*regMrDmaBuf)(void *, void *, size_t, int, uint64_t, int, void **); \
  result_t (*deregMr)(void *, void *)
#define TRANSFER(size) \
  result_t (*isend)(void *, void *, size, int, void *, void **); \
  result_t (*irecv)(void *, int, void **, size *, int *, void **, void **)
#define TRANSFER_PROFILED \
  result_t (*isend)(void *, void *, size_t, int, void *, void *, void **); \
  result_t (*irecv)(void *, int, void **, size_t *, int *, void **, void **, void **)
#define ENDS \
  result_t (*iflush)(void *, int, void **, int *, void **, void **); \
  result_t (*test)(void *, int *, int *); \
  result_t (*closeSend)(void *); \
  result_t (*closeRecv)(void *); \
  result_t (*closeListen)(void *)
#define OFFLOAD \
  result_t (*getDeviceMr)(void *, void *, void **); \
  result_t (*irecvConsumed)(void *, int, void *)
#define VIRTUAL(type) result_t (*makeVDevice)(int *, type *)
#define CONTEXT result_t (*finalize)(void *); result_t (*setNetAttr)(void *, attributes_t *)

typedef struct { const char *name; INIT_PLAIN; QUERIES(6); LISTEN; CONNECT; ACCEPT; MEMORY(int); TRANSFER(int); ENDS; } net_v6;
typedef struct { const char *name; INIT_PLAIN; QUERIES(7); LISTEN; CONNECT_OFFLOAD; ACCEPT_OFFLOAD; MEMORY(int); TRANSFER(int); ENDS; OFFLOAD; } net_v7;
typedef struct { const char *name; INIT_PLAIN; QUERIES(8); LISTEN; CONNECT_OFFLOAD; ACCEPT_OFFLOAD; MEMORY(size_t); TRANSFER(int); ENDS; OFFLOAD; } net_v8;
typedef struct { const char *name; INIT_PLAIN; QUERIES(9); LISTEN; CONNECT_OFFLOAD; ACCEPT_OFFLOAD; MEMORY(size_t); TRANSFER(size_t); ENDS; OFFLOAD; VIRTUAL(vdevice4_t); } net_v9;
typedef struct { const char *name; INIT_PROFILED; QUERIES(10); LISTEN; CONNECT_CONFIG; ACCEPT_OFFLOAD; MEMORY(size_t); TRANSFER_PROFILED; ENDS; OFFLOAD; VIRTUAL(vdevice4_t); } net_v10;
typedef struct { const char *name; INIT_CONTEXT; QUERIES(11); LISTEN_CONTEXT; CONNECT_CONTEXT; ACCEPT_OFFLOAD; MEMORY(size_t); TRANSFER_PROFILED; ENDS; OFFLOAD; VIRTUAL(vdevice4_t); CONTEXT; } net_v11;
typedef struct { const char *name; INIT_CONTEXT; QUERIES(12); LISTEN_CONTEXT; CONNECT_CONTEXT; ACCEPT_OFFLOAD; MEMORY(size_t); TRANSFER_PROFILED; ENDS; OFFLOAD; VIRTUAL(vdevice8_t); CONTEXT; } net_v12;
