#include "versions.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

enum { MOST_GROUPED = 32 };

/* Version 10 has the configuration in connect: there is one communicator here. */
static config_t config;

#define EACH(v) \
  static net_v##v *table_v##v; \
  static result_t describe_v##v(int device, device_t *out) { \
    properties_v##v p; \
    memset(&p, 0xA5, sizeof p); /* what a plugin forgets to fill in shows */ \
    result_t result = table_v##v->getProperties(device, &p); \
    if (result != SUCCESS) return result; \
    snprintf(out->name, sizeof out->name, "%s", p.name); \
    out->ptrSupport = p.ptrSupport; \
    out->speed = p.speed; \
    out->maxComms = p.maxComms; \
    out->maxRecvs = p.maxRecvs; \
    return p.guid == (uint64_t)device ? SUCCESS : INTERNAL_ERROR; \
  }

#define PLAIN(v) \
  static result_t init_v##v(void **context, int trafficClass, logger_t logger) { \
    *context = NULL; \
    (void)trafficClass; \
    return table_v##v->init(logger); \
  }
#define NO_CONTEXT(v) \
  static result_t listen_v##v(void *context, int device, void *handle, void **listener) { \
    (void)context; \
    return table_v##v->listen(device, handle, listener); \
  } \
  static result_t finalize_v##v(void *context) { return context ? INTERNAL_ERROR : SUCCESS; }
#define OFFLOADED(v) \
  static result_t accept_v##v(void *listener, void **receiver) { \
    void *offload = NULL; \
    return table_v##v->accept(listener, receiver, &offload); \
  }
#define CONNECT_7_TO_9(v) \
  static result_t connect_v##v(void *context, int device, void *handle, void **sender) { \
    void *offload = NULL; \
    (void)context; \
    return table_v##v->connect(device, handle, sender, &offload); \
  }
#define IN_CONTEXT(v) \
  static result_t init_v##v(void **context, int trafficClass, logger_t logger) { \
    config_t own = {trafficClass}; \
    return table_v##v->init(context, 4711, &own, logger, NULL); \
  } \
  static result_t listen_v##v(void *context, int device, void *handle, void **listener) { \
    return table_v##v->listen(context, device, handle, listener); \
  } \
  static result_t connect_v##v(void *context, int device, void *handle, void **sender) { \
    void *offload = NULL; \
    return table_v##v->connect(context, device, handle, sender, &offload); \
  } \
  static result_t finalize_v##v(void *context) { return table_v##v->finalize(context); }
#define REGISTER(v, type) \
  static result_t regMr_v##v(void *connection, void *data, size_t size, int kind, void **registration) { \
    return table_v##v->regMr(connection, data, (type)size, kind, registration); \
  }
#define MOVE(v, type) \
  static result_t isend_v##v(void *sender, void *data, size_t size, int tag, void *registration, void **request) { \
    return table_v##v->isend(sender, data, (type)size, tag, registration, request); \
  } \
  static result_t irecv_v##v(void *receiver, int n, void **data, size_t *sizes, int *tags, void **registrations, \
                             void **request) { \
    type own[MOST_GROUPED]; \
    for (int i = 0; i < n && i < MOST_GROUPED; i++) own[i] = (type)sizes[i]; \
    return table_v##v->irecv(receiver, n, data, own, tags, registrations, request); \
  }
#define MOVE_PROFILED(v) \
  static result_t isend_v##v(void *sender, void *data, size_t size, int tag, void *registration, void **request) { \
    return table_v##v->isend(sender, data, size, tag, registration, NULL, request); \
  } \
  static result_t irecv_v##v(void *receiver, int n, void **data, size_t *sizes, int *tags, void **registrations, \
                             void **request) { \
    void *profiles[MOST_GROUPED] = {NULL}; \
    return table_v##v->irecv(receiver, n, data, sizes, tags, registrations, profiles, request); \
  }

EACH(6) PLAIN(6) NO_CONTEXT(6) REGISTER(6, int) MOVE(6, int)
EACH(7) PLAIN(7) NO_CONTEXT(7) CONNECT_7_TO_9(7) OFFLOADED(7) REGISTER(7, int) MOVE(7, int)
EACH(8) PLAIN(8) NO_CONTEXT(8) CONNECT_7_TO_9(8) OFFLOADED(8) REGISTER(8, size_t) MOVE(8, int)
EACH(9) PLAIN(9) NO_CONTEXT(9) CONNECT_7_TO_9(9) OFFLOADED(9) REGISTER(9, size_t) MOVE(9, size_t)
EACH(10) NO_CONTEXT(10) OFFLOADED(10) REGISTER(10, size_t) MOVE_PROFILED(10)
EACH(11) IN_CONTEXT(11) OFFLOADED(11) REGISTER(11, size_t) MOVE_PROFILED(11)
EACH(12) IN_CONTEXT(12) OFFLOADED(12) REGISTER(12, size_t) MOVE_PROFILED(12)

static result_t connect_v6(void *context, int device, void *handle, void **sender) {
  (void)context;
  return table_v6->connect(device, handle, sender);
}

static result_t accept_v6(void *listener, void **receiver) { return table_v6->accept(listener, receiver); }

static result_t init_v10(void **context, int trafficClass, logger_t logger) {
  *context = NULL;
  config.trafficClass = trafficClass;
  return table_v10->init(logger, NULL);
}

static result_t connect_v10(void *context, int device, void *handle, void **sender) {
  void *offload = NULL;
  (void)context;
  return table_v10->connect(device, &config, handle, sender, &offload);
}

#define FACE(v) \
  case v: \
    if (!(table_v##v = dlsym(library, "ncclNetPlugin_v" #v))) return 0; \
    *net = (net_t){ \
      init_v##v, table_v##v->devices, describe_v##v, listen_v##v, connect_v##v, accept_v##v, regMr_v##v, \
      table_v##v->deregMr, isend_v##v, irecv_v##v, table_v##v->iflush, table_v##v->test, table_v##v->closeSend, \
      table_v##v->closeRecv, table_v##v->closeListen, finalize_v##v, \
    }; \
    return 1;

int net_of_version(void *library, int version, net_t *net) {
  switch (version) {
    FACE(6)
    FACE(7)
    FACE(8)
    FACE(9)
    FACE(10)
    FACE(11)
    FACE(12)
  }
  return 0;
}
