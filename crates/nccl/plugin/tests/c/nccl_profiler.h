/* The interface of NCCL's profiler plugins, versions 1 to 6, as NCCL 2.30.7 has it. */
#pragma once

#include "nccl_net.h"
#include <stdbool.h>
#include <sys/types.h>

enum {
  GROUP = 1 << 0, COLL = 1 << 1, P2P = 1 << 2, PROXY_OP = 1 << 3, PROXY_STEP = 1 << 4, PROXY_CTRL = 1 << 5, KERNEL_CH = 1 << 6,
  NET_PLUGIN = 1 << 7, GROUP_API = 1 << 8, COLL_API = 1 << 9, P2P_API = 1 << 10, KERNEL_LAUNCH = 1 << 11, CE_COLL = 1 << 12
};
enum {
  SEND_GPU_WAIT = 8, SEND_WAIT = 9, RECV_WAIT = 10, RECV_FLUSH_WAIT = 11, RECV_GPU_WAIT = 12, PROXY_OP_IN_PROGRESS = 19,
  SEND_PEER_WAIT = 20, NET_PLUGIN_UPDATE = 21, KERNEL_CH_STOP = 22
};

#define PROXY \
  struct { pid_t pid; uint8_t channelId; int peer, nSteps, chunkSize, isSend; } proxyOp; \
  struct { int step; } proxyStep
#define NAMED \
  uint64_t seqNumber; const char *func; const void *sendBuff; void *recvBuff; size_t count; int root; const char *datatype
#define WAY uint8_t nChannels, nWarps; const char *algo, *proto
#define P2P_NAMED const char *func; void *buff; const char *datatype; size_t count; int peer
#define KERNEL_NET \
  struct { uint8_t channelId; uint64_t pTimer; } kernelCh; \
  struct { int64_t id; void *data; } netPlugin
#define API \
  struct { bool graphCaptured; int groupDepth; } groupApi; \
  struct { const char *func; size_t count; const char *datatype; int root; void *stream; bool graphCaptured; } collApi; \
  struct { const char *func; size_t count; const char *datatype; void *stream; bool graphCaptured; } p2pApi; \
  struct { void *stream; } kernelLaunch; \
  struct { NAMED; WAY; void *parentGroup; } coll; \
  struct { P2P_NAMED; uint8_t nChannels; void *parentGroup; } p2p

typedef struct {
  uint8_t type; void *parentObj; int rank;
  union {
    struct {
      const char *name; uint64_t commHash, seqNumber; uint8_t func; const void *sendBuff; void *recvBuff; size_t count; int root;
      uint8_t datatype; uint32_t op; size_t trafficBytes; uint8_t nMaxChannels, nWarps, algo, proto; int isCollnet, isNvls;
    } coll;
    struct { const char *name; uint64_t commHash; uint8_t func; void *buff; uint8_t datatype; size_t count; int peer; } p2p;
    PROXY;
  };
} descr_v1;

typedef struct {
  uint8_t type; void *parentObj; int rank;
  union {
    struct { const char *name; uint64_t commHash; NAMED; size_t trafficBytes; WAY; } coll;
    struct { const char *name; uint64_t commHash; P2P_NAMED; } p2p;
    PROXY;
  };
} descr_v2;

typedef struct {
  uint8_t type; void *parentObj; int rank;
  union {
    struct { const char *name; uint64_t commHash; NAMED; WAY; } coll;
    struct { const char *name; uint64_t commHash; P2P_NAMED; } p2p;
    PROXY;
    struct { uint8_t channelId; } kernelCh;
    struct { int64_t id; void *data; } netPlugin;
  };
} descr_v3;

typedef struct {
  uint8_t type; void *parentObj; int rank;
  union {
    struct { NAMED; WAY; } coll;
    struct { P2P_NAMED; uint8_t nChannels; } p2p;
    PROXY;
    KERNEL_NET;
  };
} descr_v4;

typedef struct {
  uint64_t type; void *parentObj; int rank;
  union { API; PROXY; KERNEL_NET; };
} descr_v5;

typedef struct {
  uint64_t type; void *parentObj; int rank;
  union {
    API; PROXY; KERNEL_NET;
    struct {
      NAMED; const char *syncStrategy; bool intraBatchSync; uint32_t batchSize, numBatches, ceSeqNum; void *stream;
    } ceColl;
  };
} descr_v6;

typedef union {
  struct { size_t transSize; } proxyStep;
  struct { int appendedProxyOps; } proxyCtrl;
  struct { void *data; } netPlugin;
  struct { uint64_t pTimer; } kernelCh;
} state_args;

#define PROFILER(v, INIT) \
  typedef struct { \
    const char *name; \
    result_t (*init) INIT; \
    result_t (*startEvent)(void *context, void **handle, descr_v##v *); \
    result_t (*stopEvent)(void *handle); \
    result_t (*recordEventState)(void *handle, int state, state_args *); \
    result_t (*finalize)(void *context); \
  } profiler_v##v

#define OF_1_TO_3 (void **context, int *mask)
#define OF_4 \
  (void **context, int *mask, const char *commName, uint64_t commHash, int nNodes, int nRanks, int rank, logger_t)
#define OF_5 \
  (void **context, uint64_t commId, int *mask, const char *commName, int nNodes, int nRanks, int rank, logger_t)
PROFILER(1, OF_1_TO_3); PROFILER(2, OF_1_TO_3); PROFILER(3, OF_1_TO_3);
PROFILER(4, OF_4); PROFILER(5, OF_5); PROFILER(6, OF_5);
