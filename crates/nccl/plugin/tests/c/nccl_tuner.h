/* The interface of NCCL's tuner plugins, versions 2 to 6, as NCCL 2.30 has it. */
#pragma once

#include "nccl_net.h"

enum { ALGORITHMS = 7, PROTOCOLS = 3 };
enum { BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE };
enum { TREE, RING, COLLNET_DIRECT, COLLNET_CHAIN, NVLS, NVLS_TREE, PAT };
enum { LL, LL128, SIMPLE };

typedef struct {
  int nNvlDomains, minRanksPerNvlDomain, maxRanksPerNvlDomain;
} domains_t;

typedef struct {
  double baseLatencies[ALGORITHMS][PROTOCOLS], hwLatencies[3][ALGORITHMS][PROTOCOLS];
  double llMaxBws[4][3], perChMaxRingLL128Bws[4][3], perChMaxTreeLL128Bws[4][3], perChMaxTreeBws[4][3],
    perChMaxNVLSTreeBws[4][3];
} constants_t;

#define INIT_2_TO_4 result_t (*init)(size_t nRanks, size_t nNodes, logger_t logger, void **context)
#define INIT_5 \
  result_t (*init)(void **context, uint64_t commId, size_t nRanks, size_t nNodes, logger_t logger, domains_t *domains, \
                   constants_t *constants)
#define CHOOSE_REGISTERED \
  result_t (*getCollInfo)(void *context, int collType, size_t nBytes, int numPipeOps, float **costs, int numAlgo, \
                          int numProto, int regBuff, int *nChannels)

typedef struct {
  const char *name;
  INIT_2_TO_4;
  result_t (*getCollInfo)(void *context, int collType, size_t nBytes, int collNetSupport, int nvlsSupport, int numPipeOps,
                          int *algorithm, int *protocol, int *nChannels);
  result_t (*destroy)(void *context);
} tuner_v2;

typedef struct {
  const char *name;
  INIT_2_TO_4;
  result_t (*getCollInfo)(void *context, int collType, size_t nBytes, int numPipeOps, float **costs, int numAlgo,
                          int numProto, int *nChannels);
  result_t (*destroy)(void *context);
} tuner_v3;

typedef struct {
  const char *name;
  INIT_2_TO_4;
  CHOOSE_REGISTERED;
  result_t (*destroy)(void *context);
} tuner_v4;

typedef struct {
  const char *name;
  INIT_5;
  CHOOSE_REGISTERED;
  result_t (*finalize)(void *context);
} tuner_v5;

typedef struct {
  const char *name;
  INIT_5;
  CHOOSE_REGISTERED;
  result_t (*finalize)(void *context);
  result_t (*getChunkSize)(void *context, int collType, size_t nBytes, int algo, int proto, int nChannels, size_t *chunkSize);
} tuner_v6;
