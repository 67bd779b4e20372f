/* One face for all versions, as NCCL itself makes one: every call in the form of the newest version. */
#pragma once
#include "nccl_net.h"

typedef struct {
  char name[64];
  int ptrSupport, speed, maxComms, maxRecvs;
} device_t;

typedef struct {
  result_t (*init)(void **context, int trafficClass, logger_t);
  result_t (*devices)(int *);
  result_t (*describe)(int device, device_t *);
  result_t (*listen)(void *context, int device, void *handle, void **listener);
  result_t (*connect)(void *context, int device, void *handle, void **sender);
  result_t (*accept)(void *listener, void **receiver);
  result_t (*regMr)(void *connection, void *data, size_t size, int kind, void **registration);
  result_t (*deregMr)(void *, void *);
  result_t (*isend)(void *sender, void *data, size_t size, int tag, void *registration, void **request);
  result_t (*irecv)(void *receiver, int n, void **data, size_t *sizes, int *tags, void **registrations, void **request);
  result_t (*iflush)(void *, int, void **, int *, void **, void **);
  result_t (*test)(void *, int *, int *);
  result_t (*closeSend)(void *);
  result_t (*closeRecv)(void *);
  result_t (*closeListen)(void *);
  result_t (*finalize)(void *context);
} net_t;

/* The face of a version of the plugin at `library` (dlopen's); 0 where it has none. */
int net_of_version(void *library, int version, net_t *net);
