/* A fake of the CUDA driver for tests: memory is the host's, streams do everything at once, kernels are busbw's own, run by
   one thread. Built as libcuda.so.1, and with hip_names.h as libamdhip64.so.6; tests say with FAKE_GPUS how many GPUs there are. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cuda_in_c.h"

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NO_DEVICE = 100, NOT_FOUND = 500, NOT_READY = 600,
       NOT_CAPTURABLE = 900 };

struct work { void (*run)(void *); void *argument; struct work *next; };
struct stream { int capturing, hangs; struct work *kept, **end; };
struct event { double at; };

static __thread int current = -1;
static struct stream null_stream;

static int gpus(void) { const char *text = getenv("FAKE_GPUS"); return text ? atoi(text) : 1; }
static struct stream *of(void *stream) { return stream ? stream : &null_stream; }

/* For the fake NCCL. */
int fake_current_device(void) { return current; }
void fake_hang(void *stream, int hangs) { __atomic_store_n(&of(stream)->hangs, hangs, __ATOMIC_SEQ_CST); }
int fake_keep(void *raw, void (*run)(void *), void *argument) {
    struct stream *stream = of(raw);
    struct work *work;
    if (!stream->capturing) return 0;
    work = calloc(1, sizeof *work);
    work->run = run, work->argument = argument;
    *stream->end = work, stream->end = &work->next;
    return 1;
}

int cuInit(unsigned flags) {
    const char *fails = getenv("FAKE_CUDA_INIT");
    (void)flags;
    return fails ? atoi(fails) : gpus() > 0 ? SUCCESS : NO_DEVICE;
}
#ifdef FAKE_HIP
int cuDriverGetVersion(int *version) { *version = 60240091; return SUCCESS; }
#else
int cuDriverGetVersion(int *version) { *version = 12080; return SUCCESS; }
#endif
int cuGetErrorName(int code, const char **name) {
    *name = code == NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_FAKE";
    return SUCCESS;
}
int cuGetErrorString(int code, const char **text) { (void)code; *text = "said by the fake driver"; return SUCCESS; }
int cuDeviceGetCount(int *count) { *count = gpus(); return SUCCESS; }
int cuDeviceGet(int *device, int index) { *device = index; return index < gpus() ? SUCCESS : INVALID_VALUE; }
int cuDeviceGetName(char *name, int room, int device) { (void)device; snprintf(name, room, "Fake GPU"); return SUCCESS; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; *bytes = (size_t)4 << 30; return SUCCESS; }
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    const char *capability = getenv("FAKE_CAPABILITY");
    int known = capability ? atoi(capability) : 90;
#ifdef FAKE_HIP
    enum { PROCESSORS = 63, BUS = 67, DEVICE = 68, DOMAIN = 69, MAJOR = 23, MINOR = 61 };
#else
    enum { PROCESSORS = 16, BUS = 33, DEVICE = 34, DOMAIN = 50, MAJOR = 75, MINOR = 76 };
#endif
    switch (attribute) {
    case PROCESSORS: *value = 4; break;
    case BUS: *value = 0x1b + device; break;
    case DEVICE: case DOMAIN: *value = 0; break;
    case MAJOR: *value = known / 10; break;
    case MINOR: *value = known % 10; break;
    default: return INVALID_VALUE;
    }
    return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(intptr_t)(device + 1); return SUCCESS; }
int cuDevicePrimaryCtxRelease_v2(int device) { (void)device; return SUCCESS; }
int cuCtxSetCurrent(void *context) { current = (int)(intptr_t)context - 1; return SUCCESS; }

int cuMemGetInfo_v2(size_t *available, size_t *total) {
    *available = (size_t)3 << 30, *total = (size_t)4 << 30;
    return SUCCESS;
}
int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
    void *memory = NULL;
    if (bytes > (size_t)3 << 30 || posix_memalign(&memory, 4096, bytes)) return OUT_OF_MEMORY;
    memset(memory, 0xee, bytes);
    *address = (uint64_t)(uintptr_t)memory;
    return SUCCESS;
}
int cuMemFree_v2(uint64_t address) { free((void *)(uintptr_t)address); return SUCCESS; }
int cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    (void)flags;
    return (*memory = malloc(bytes)) ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemFreeHost(void *memory) { free(memory); return SUCCESS; }
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    (void)stream, memcpy((void *)(uintptr_t)to, from, bytes);
    return SUCCESS;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    (void)stream, memcpy(to, (void *)(uintptr_t)from, bytes);
    return SUCCESS;
}
int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void *stream) {
    (void)stream, memset((void *)(uintptr_t)to, value, bytes);
    return SUCCESS;
}

struct copy { void *to, *from; size_t bytes; };
static void copy(void *raw) { struct copy *what = raw; memcpy(what->to, what->from, what->bytes); }
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    struct copy *what = malloc(sizeof *what);
    *what = (struct copy){ (void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes };
    if (fake_keep(stream, copy, what)) return SUCCESS;
    copy(what), free(what);
    return SUCCESS;
}

int cuStreamCreate(void **stream, unsigned flags) { (void)flags; *stream = calloc(1, sizeof(struct stream)); return SUCCESS; }
int cuStreamDestroy_v2(void *stream) { free(stream); return SUCCESS; }
int cuStreamQuery(void *stream) {
    if (of(stream)->capturing) return NOT_CAPTURABLE;
    return __atomic_load_n(&of(stream)->hangs, __ATOMIC_SEQ_CST) ? NOT_READY : SUCCESS;
}
int cuStreamBeginCapture_v2(void *raw, int mode) {
    struct stream *stream = of(raw);
    if (!raw || mode != 1) return NOT_CAPTURABLE;
    stream->capturing = 1, stream->kept = NULL, stream->end = &stream->kept;
    return SUCCESS;
}
int cuStreamEndCapture(void *raw, void **graph) {
    struct stream *stream = of(raw);
    if (!stream->capturing) return NOT_CAPTURABLE;
    stream->capturing = 0, *graph = stream->kept;
    return SUCCESS;
}
int cuGraphInstantiateWithFlags(void **executable, void *graph, unsigned long long flags) {
    struct work **kept = malloc(sizeof *kept);
    (void)flags, *kept = graph, *executable = kept;
    return SUCCESS;
}
int cuGraphDestroy(void *graph) { (void)graph; return SUCCESS; }
int cuGraphLaunch(void *executable, void *stream) {
    struct work *work;
    (void)stream;
    for (work = *(struct work **)executable; work; work = work->next) work->run(work->argument);
    return SUCCESS;
}
int cuGraphExecDestroy(void *executable) {
    struct work *work = *(struct work **)executable, *next;
    for (; work; work = next) next = work->next, free(work);
    free(executable);
    return SUCCESS;
}

int cuEventCreate(void **event, unsigned flags) { (void)flags; *event = calloc(1, sizeof(struct event)); return SUCCESS; }
int cuEventDestroy_v2(void *event) { free(event); return SUCCESS; }
int cuEventRecord(void *event, void *stream) {
    struct timespec now;
    (void)stream, clock_gettime(CLOCK_MONOTONIC, &now);
    ((struct event *)event)->at = now.tv_sec * 1e3 + now.tv_nsec / 1e6;
    return SUCCESS;
}
int cuEventQuery(void *event) { (void)event; return SUCCESS; }
int cuEventElapsedTime(float *milliseconds, void *from, void *to) {
    *milliseconds = (float)(((struct event *)to)->at - ((struct event *)from)->at);
    return SUCCESS;
}

int cuModuleLoadData(void **module, const void *image) {
    *module = (void *)image;
    return memcmp(image, "fake code", 9) ? INVALID_VALUE : SUCCESS;
}
int cuModuleUnload(void *module) { (void)module; return SUCCESS; }
int cuModuleGetFunction(void **function, void *module, const char *name) {
    (void)module;
    *function = (void *)(intptr_t)(!strcmp(name, "busbw_fill") ? 1 : !strcmp(name, "busbw_count_wrong") ? 2 : 0);
    return *function ? SUCCESS : NOT_FOUND;
}
#define ARGUMENT(type, number) (*(type *)arguments[number])
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned ty, unsigned tz,
                   unsigned shared, void *stream, void **arguments, void **extra) {
    (void)y, (void)z, (void)ty, (void)tz, (void)shared, (void)stream, (void)extra;
    gridDim.x = x, blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < x; blockIdx.x++)
        for (threadIdx.x = 0; threadIdx.x < threads; threadIdx.x++)
            if (function == (void *)1)
                busbw_fill(ARGUMENT(byte *, 0), ARGUMENT(byte *, 1), ARGUMENT(int, 2), ARGUMENT(number, 3),
                           ARGUMENT(number, 4), ARGUMENT(number, 5), ARGUMENT(number, 6));
            else
                busbw_count_wrong(ARGUMENT(byte *, 0), ARGUMENT(byte *, 1), ARGUMENT(double *, 2), ARGUMENT(int, 3),
                                  ARGUMENT(int, 4), ARGUMENT(number, 5), ARGUMENT(number, 6), ARGUMENT(number, 7),
                                  ARGUMENT(number, 8), ARGUMENT(number *, 9));
    return SUCCESS;
}
