/* Prints where a C compiler puts things: "TYPE.MEMBER OFFSET" and "TYPE SIZE". */
#include "nccl_net.h"
#include "nccl_profiler.h"
#include "nccl_tuner.h"
#include <stdio.h>

#define SIZE(type) printf(#type " %zu\n", sizeof(type))
#define AT(type, member) printf(#type "." #member " %zu\n", offsetof(type, member))
#define PROPERTIES(v) \
  SIZE(properties_v##v); \
  AT(properties_v##v, name); \
  AT(properties_v##v, guid); \
  AT(properties_v##v, ptrSupport); \
  AT(properties_v##v, speed); \
  AT(properties_v##v, latency); \
  AT(properties_v##v, maxRecvs)
#define NET(v) \
  SIZE(net_v##v); \
  AT(net_v##v, init); \
  AT(net_v##v, regMr); \
  AT(net_v##v, test); \
  AT(net_v##v, closeListen)

#define PROFILER_OF(v) \
  SIZE(profiler_v##v); \
  AT(profiler_v##v, finalize); \
  AT(descr_v##v, parentObj); \
  AT(descr_v##v, rank); \
  AT(descr_v##v, coll.count); \
  AT(descr_v##v, coll.algo); \
  AT(descr_v##v, coll.proto); \
  AT(descr_v##v, p2p.count); \
  AT(descr_v##v, proxyOp.isSend)

int main(void) {
  PROPERTIES(6); PROPERTIES(7); PROPERTIES(8); PROPERTIES(9); PROPERTIES(11); PROPERTIES(12);
  AT(properties_v7, netDeviceVersion);
  AT(properties_v8, regIsGlobal);
  AT(properties_v9, vProps);
  AT(properties_v9, maxCollBytes);
  AT(properties_v11, maxMultiRequestSize);
  AT(properties_v12, vProps);
  AT(properties_v12, maxMultiRequestSize);
  AT(properties_v12, planeId);
  SIZE(attributes_t); SIZE(config_t);
  NET(6); NET(7); NET(8); NET(9); NET(10); NET(11); NET(12);
  AT(net_v12, finalize);
  AT(net_v12, setNetAttr);
  SIZE(tuner_v2); SIZE(tuner_v5); SIZE(tuner_v6); SIZE(domains_t);
  AT(tuner_v2, getCollInfo);
  AT(tuner_v5, finalize);
  AT(tuner_v6, getChunkSize);
  PROFILER_OF(1); PROFILER_OF(2); PROFILER_OF(3); PROFILER_OF(4); PROFILER_OF(5); PROFILER_OF(6);
  AT(descr_v1, coll.datatype);
  AT(descr_v4, kernelCh.pTimer);
  AT(descr_v4, netPlugin.data);
  AT(descr_v5, collApi.graphCaptured);
  AT(descr_v5, p2pApi.graphCaptured);
  AT(descr_v6, ceColl.datatype);
  AT(descr_v5, coll.parentGroup);
  AT(descr_v5, p2p.nChannels);
  AT(descr_v5, p2p.parentGroup);
  AT(descr_v5, groupApi.groupDepth);
  SIZE(descr_v5);
  SIZE(descr_v6);
  SIZE(state_args);
  return 0;
}
