/* A fake of NCCL for tests, built as libnccl.so.2 of version FAKE_VERSION: ranks leave each other messages as files in a folder
   below TMPDIR. Operations of a group first say what they give, then wait for what they get, as NCCL's run at once.

   FAKE_NCCL_FLIP=R: rank R's results have a wrong bit. FAKE_NCCL_FAIL_AT=N and FAKE_NCCL_FAIL_RANK=R: operation N of rank R
   never ends, and NCCL tells of a remote error. FAKE_NCCL_MUTE=R: nobody hears of rank R. WITHOUT_ABORT (when built): ncclCommAbort is missing. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_in_c.h"

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6 };
enum kind { INIT, ALL_REDUCE, REDUCE, REDUCE_SCATTER, BROADCAST, ALL_GATHER, ALL_TO_ALL, GATHER, SCATTER, SEND, RECEIVE };
enum { MOST_RANKS = 64, MOST_OPERATIONS = 4096 };

struct id { char folder[128]; };
struct comm {
    struct id id;
    int rank, size, aborted, error, operations;
    long sent[MOST_RANKS], received[MOST_RANKS];
    void *stuck;
    double scalar[16];
    uint64_t bits[16];
    int scalars;
};
struct op { enum kind kind; struct comm *comm; const char *send; char *receive; size_t count; int type, redop, root; void *stream; };
struct batch { int count; struct op ops[]; };

extern int fake_current_device(void);
extern int fake_keep(void *stream, void (*run)(void *), void *argument);
extern void fake_hang(void *stream, int hangs);

static __thread int depth, queued;
static __thread struct op queue[MOST_OPERATIONS];
static char last_error[256];

static int fail(int code, const char *why) { snprintf(last_error, sizeof last_error, "%s", why); return code; }
static int number_of(const char *variable, int missing) { const char *text = getenv(variable); return text ? atoi(text) : missing; }
static size_t element(int type) { static const size_t bytes[] = { 1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1 }; return bytes[type]; }

/* Messages. */

static int tell(struct comm *comm, int to, const void *bytes, size_t count) {
    char name[256], hidden[256];
    long number = comm->sent[to]++;
    int file;
    snprintf(hidden, sizeof hidden, "%s/.%d-%d-%ld", comm->id.folder, comm->rank, to, number);
    snprintf(name, sizeof name, "%s/%d-%d-%ld", comm->id.folder, comm->rank, to, number);
    if ((file = open(hidden, O_WRONLY | O_CREAT | O_EXCL, 0600)) < 0) return fail(SYSTEM_ERROR, "a message cannot be written");
    while (count > 0) {
        ssize_t done = write(file, bytes, count);
        if (done <= 0) return fail(SYSTEM_ERROR, "a message cannot be written");
        bytes = (const char *)bytes + done, count -= done;
    }
    close(file);
    return rename(hidden, name) ? fail(SYSTEM_ERROR, "a message cannot be written") : SUCCESS;
}

static int hear(struct comm *comm, int from, void *bytes, size_t count) {
    char name[256];
    int file;
    snprintf(name, sizeof name, "%s/%d-%d-%ld", comm->id.folder, from, comm->rank, comm->received[from]++);
    while ((file = open(name, O_RDONLY)) < 0) {
        if (__atomic_load_n(&comm->aborted, __ATOMIC_SEQ_CST)) return fail(REMOTE_ERROR, "aborted while waiting");
        usleep(100);
    }
    while (count > 0) {
        ssize_t done = read(file, bytes, count);
        if (done <= 0) return fail(INVALID_USAGE, "a message is shorter than what is waited for");
        bytes = (char *)bytes + done, count -= done;
    }
    close(file), unlink(name);
    return SUCCESS;
}

/* Numbers. */

static int float_kind(int type) { return type < 6 ? -1 : type - 6; }
static int is_signed(int type) { return type == 0 || type == 2 || type == 4; }
static uint64_t narrow(int type, uint64_t bits) { size_t unused = 64 - 8 * element(type); return bits << unused >> unused; }
static int64_t widen(int type, uint64_t bits) { size_t unused = 64 - 8 * element(type); return (int64_t)(bits << unused) >> unused; }

static uint64_t round_to(double value, int exponents, int significands) {
    int bias = (1 << (exponents - 1)) - 1, exponent;
    double size = fabs(value);
    uint64_t sign = signbit(value) ? 1ull << (exponents + significands) : 0;
    if (size == 0) return sign;
    exponent = ilogb(size) < 1 - bias ? 1 - bias : ilogb(size);
    return sign | (((uint64_t)(exponent + bias - 1) << significands) + (uint64_t)rint(ldexp(size, significands - exponent)));
}

static uint64_t encode(double value, int kind) {
    uint64_t bits = 0;
    float single = (float)value;
    switch (kind) {
    case 0: return round_to(value, 5, 10);
    case 1: memcpy(&bits, &single, 4); return bits;
    case 2: memcpy(&bits, &value, 8); return bits;
    case 3: return round_to(value, 8, 7);
    case 4: return round_to(value, 4, 3);
    default: return round_to(value, 5, 2);
    }
}

static uint64_t reduce_integers(const struct op *op, const uint64_t *of, int ranks, int type) {
    uint64_t result = of[0];
    int i;
    for (i = 1; i < ranks; i++)
        switch (op->redop) {
        case 1: result *= of[i]; break;
        case 2: result = is_signed(type) ? (uint64_t)(widen(type, of[i]) > widen(type, result) ? widen(type, of[i]) : widen(type, result)) : of[i] > result ? of[i] : result; break;
        case 3: result = is_signed(type) ? (uint64_t)(widen(type, of[i]) < widen(type, result) ? widen(type, of[i]) : widen(type, result)) : of[i] < result ? of[i] : result; break;
        default: result += of[i];
        }
    result = narrow(type, result);
    if (op->redop == 4) result = is_signed(type) ? (uint64_t)(widen(type, result) / ranks) : result / ranks;
    return result;
}

static double rounded(double value, int kind) { return decode(encode(value, kind), kind); }

/* An average multiplies by 1/n before it sums, as NCCL's does: that rounds otherwise than dividing the sum. */
static uint64_t reduce_floats(const struct op *op, const uint64_t *of, int ranks, int kind) {
    double factor = op->redop == 4 ? rounded(1.0 / ranks, kind) : 1, result = rounded(factor * decode(of[0], kind), kind), next;
    int i;
    for (i = 1; i < ranks; i++) {
        next = rounded(factor * decode(of[i], kind), kind);
        switch (op->redop) {
        case 1: result *= next; break;
        case 2: result = next > result ? next : result; break;
        case 3: result = next < result ? next : result; break;
        default: result = rounded(result + next, kind);
        }
    }
    return encode(result, kind);
}

/* What a rank gives, multiplied where the operation says so (ncclRedOpCreatePreMulSum). */
static char *given(const struct op *op, size_t count) {
    size_t size = element(op->type), i;
    int kind = float_kind(op->type), made = op->redop - 5;
    char *copy = malloc(count * size + 1);
    memcpy(copy, op->send, count * size);
    for (i = 0; made >= 0 && i < count; i++) {
        number bits = load((byte *)copy, i, (int)size);
        bits = kind < 0 ? bits * op->comm->bits[made] : encode(decode(bits, kind) * op->comm->scalar[made], kind);
        store((byte *)copy, i, (int)size, bits);
    }
    return copy;
}

/* Reduces elements from `first` on of what all ranks give. */
static int reduce(const struct op *op, size_t first) {
    struct comm *comm = op->comm;
    size_t size = element(op->type), i;
    int rank, result = SUCCESS, kind = float_kind(op->type);
    char *of[MOST_RANKS];
    uint64_t column[MOST_RANKS];
    for (rank = 0; rank < comm->size; rank++) {
        if (rank == comm->rank) {
            char *own = given(op, first + op->count);
            memmove(own, own + first * size, op->count * size);
            of[rank] = own;
        } else {
            of[rank] = malloc(op->count * size + 1);
            if (!result) result = hear(comm, rank, of[rank], op->count * size);
        }
    }
    for (i = 0; !result && i < op->count; i++) {
        for (rank = 0; rank < comm->size; rank++) column[rank] = load((byte *)of[rank], i, (int)size);
        store((byte *)op->receive, i, (int)size,
              kind < 0 ? reduce_integers(op, column, comm->size, op->type) : reduce_floats(op, column, comm->size, kind));
    }
    for (rank = 0; rank < comm->size; rank++) free(of[rank]);
    return result;
}

/* Operations, in two halves. */

static int to_all(const struct op *op, const char *bytes, size_t count, size_t step) {
    int rank, result = SUCCESS;
    for (rank = 0; !result && rank < op->comm->size; rank++)
        if (rank != op->comm->rank) result = tell(op->comm, rank, bytes + rank * step, count);
    return result;
}

static int from_all(const struct op *op, const char *own) {
    size_t bytes = op->count * element(op->type);
    char *mine = op->receive + op->comm->rank * bytes;
    int rank, result = SUCCESS;
    if (mine != own) memmove(mine, own, bytes);
    for (rank = 0; !result && rank < op->comm->size; rank++)
        if (rank != op->comm->rank) result = hear(op->comm, rank, op->receive + rank * bytes, bytes);
    return result;
}

static int is_root(const struct op *op) { return op->comm->rank == op->root; }

static void hello(char text[128]) {
    const char *host = getenv("NCCL_HOSTID");
    snprintf(text, 128, "%s/%d", host ? host : "", fake_current_device());
}

static int give(struct op *op) {
    size_t bytes = op->kind == INIT ? 0 : op->count * element(op->type);
    char text[128], *copy;
    int result;
    switch (op->kind) {
    case INIT:
        if (op->comm->rank == number_of("FAKE_NCCL_MUTE", -1)) return SUCCESS;
        memcpy(text, op->send, sizeof text);
        return to_all(op, text, sizeof text, 0);
    case ALL_REDUCE: copy = given(op, op->count), result = to_all(op, copy, bytes, 0), free(copy); return result;
    case REDUCE: copy = given(op, op->count), result = is_root(op) ? SUCCESS : tell(op->comm, op->root, copy, bytes), free(copy); return result;
    case REDUCE_SCATTER: copy = given(op, op->count * op->comm->size), result = to_all(op, copy, bytes, bytes), free(copy); return result;
    case BROADCAST: return is_root(op) ? to_all(op, op->send, bytes, 0) : SUCCESS;
    case ALL_GATHER: return to_all(op, op->send, bytes, 0);
    case ALL_TO_ALL: return to_all(op, op->send, bytes, bytes);
    case GATHER: return is_root(op) ? SUCCESS : tell(op->comm, op->root, op->send, bytes);
    case SCATTER: return is_root(op) ? to_all(op, op->send, bytes, bytes) : SUCCESS;
    case SEND: return tell(op->comm, op->root, op->send, bytes);
    case RECEIVE: return SUCCESS;
    }
    return INVALID_ARGUMENT;
}

static int greet(struct op *op) {
    char theirs[128];
    int rank, result = SUCCESS;
    for (rank = 0; !result && rank < op->comm->size; rank++) {
        if (rank == op->comm->rank) continue;
        result = hear(op->comm, rank, theirs, sizeof theirs);
        if (!result && !strcmp(theirs, op->send) && !getenv("NCCL_MULTI_RANK_GPU_ENABLE"))
            result = fail(INVALID_USAGE, "Duplicate GPU detected");
    }
    free((char *)op->send);
    return result;
}

static int get(struct op *op) {
    size_t bytes = op->kind == INIT ? 0 : op->count * element(op->type);
    switch (op->kind) {
    case INIT: return greet(op);
    case ALL_REDUCE: return reduce(op, 0);
    case REDUCE: return is_root(op) ? reduce(op, 0) : SUCCESS;
    case REDUCE_SCATTER: return reduce(op, op->comm->rank * op->count);
    case ALL_GATHER: return from_all(op, op->send);
    case ALL_TO_ALL: return from_all(op, op->send + op->comm->rank * bytes);
    case GATHER: return is_root(op) ? from_all(op, op->send) : SUCCESS;
    case BROADCAST:
        if (!is_root(op)) return hear(op->comm, op->root, op->receive, bytes);
        return memmove(op->receive, op->send, bytes), SUCCESS;
    case SCATTER:
        if (!is_root(op)) return hear(op->comm, op->root, op->receive, bytes);
        return memmove(op->receive, op->send + op->root * bytes, bytes), SUCCESS;
    case RECEIVE: return hear(op->comm, op->root, op->receive, bytes);
    case SEND: return SUCCESS;
    }
    return INVALID_ARGUMENT;
}

static int fails_now(struct op *op) {
    struct comm *comm = op->comm;
    if (op->kind == INIT || comm->rank != number_of("FAKE_NCCL_FAIL_RANK", -1)) return 0;
    return ++comm->operations >= number_of("FAKE_NCCL_FAIL_AT", 1);
}

static int run(struct op *ops, int count) {
    int i, result = SUCCESS;
    for (i = 0; !result && i < count; i++) {
        if (fails_now(&ops[i])) {
            ops[i].comm->error = REMOTE_ERROR, ops[i].comm->stuck = ops[i].stream;
            fake_hang(ops[i].stream, 1);
            return SUCCESS;
        }
        result = give(&ops[i]);
    }
    for (i = 0; !result && i < count; i++) {
        result = get(&ops[i]);
        if (ops[i].comm->rank == number_of("FAKE_NCCL_FLIP", -1) && ops[i].receive && ops[i].count) ops[i].receive[0] ^= 1;
    }
    return result;
}

static void run_kept(void *raw) { struct batch *batch = raw; run(batch->ops, batch->count); }

/* Keeps the operations of streams that are being captured, and runs the others. */
static int end_group(void) {
    int i, count = queued, at = 0, result;
    struct op *now = malloc(sizeof *now * (count + 1));
    queued = 0;
    for (i = 0; i < count; i++) {
        struct batch *batch = malloc(sizeof *batch + sizeof queue[i] * (count - i));
        int j;
        batch->count = 0;
        if (queue[i].kind == INIT || !queue[i].comm || !fake_keep(queue[i].stream, run_kept, batch)) {
            free(batch);
            if (queue[i].comm) now[at++] = queue[i];
            continue;
        }
        for (j = i; j < count; j++)
            if (queue[j].comm && queue[j].stream == queue[i].stream && (j == i || queue[j].comm == queue[i].comm)) batch->ops[batch->count++] = queue[j], queue[j].comm = j == i ? queue[j].comm : NULL;
    }
    result = run(now, at);
    free(now);
    return result;
}

static int add(struct op op) {
    if (queued == MOST_OPERATIONS) return fail(INVALID_USAGE, "too many operations in a group");
    if (op.kind != INIT && op.comm->aborted) return fail(INVALID_USAGE, "the communicator was aborted");
    queue[queued++] = op;
    return depth ? SUCCESS : end_group();
}

/* NCCL's functions. */

int ncclGetVersion(int *version) { *version = FAKE_VERSION; return SUCCESS; }
const char *ncclGetErrorString(int result) { (void)result; return "said by the fake NCCL"; }
const char *ncclGetLastError(void *comm) { (void)comm; return last_error; }
int ncclGroupStart(void) { depth++; return SUCCESS; }
int ncclGroupEnd(void) { return --depth ? SUCCESS : end_group(); }

int ncclGetUniqueId(struct id *id) {
    const char *below = getenv("TMPDIR");
    snprintf(id->folder, sizeof id->folder, "%s/fake-nccl-XXXXXX", below ? below : "/tmp");
    return mkdtemp(id->folder) ? SUCCESS : fail(SYSTEM_ERROR, "no folder for messages");
}

int ncclCommInitRankConfig(struct comm **comm, int size, struct id id, int rank, const void *config) {
    struct { size_t size; unsigned magic, version; } head;
    char *text = malloc(128);
    memcpy(&head, config, sizeof head);
    if (head.magic != 0xcafebeef || head.version != FAKE_VERSION || head.size < 48) return fail(INVALID_ARGUMENT, "not initialized");
    if (size > MOST_RANKS || rank >= size || fake_current_device() < 0) return fail(INVALID_ARGUMENT, "no such rank, or no GPU");
    *comm = calloc(1, sizeof **comm);
    (*comm)->id = id, (*comm)->rank = rank, (*comm)->size = size;
    hello(text);
    return add((struct op){ .kind = INIT, .comm = *comm, .send = text });
}
static void end(struct comm *comm) { rmdir(comm->id.folder); }
int ncclCommDestroy(struct comm *comm) { end(comm), free(comm); return SUCCESS; }
#ifndef WITHOUT_ABORT
/* Not freed: another thread may be waiting in it. */
int ncclCommAbort(struct comm *comm) {
    __atomic_store_n(&comm->aborted, 1, __ATOMIC_SEQ_CST);
    if (comm->stuck) fake_hang(comm->stuck, 0);
    end(comm);
    return SUCCESS;
}
#endif
int ncclCommGetAsyncError(struct comm *comm, int *error) {
    if (comm->error) fail(comm->error, "the fake network has failed");
    *error = comm->error;
    return SUCCESS;
}

int ncclAllReduce(const void *send, void *receive, size_t count, int type, int redop, struct comm *comm, void *stream) {
    return add((struct op){ ALL_REDUCE, comm, send, receive, count, type, redop, 0, stream });
}
int ncclReduceScatter(const void *send, void *receive, size_t count, int type, int redop, struct comm *comm, void *stream) {
    return add((struct op){ REDUCE_SCATTER, comm, send, receive, count, type, redop, 0, stream });
}
int ncclReduce(const void *send, void *receive, size_t count, int type, int redop, int root, struct comm *comm, void *stream) {
    return add((struct op){ REDUCE, comm, send, receive, count, type, redop, root, stream });
}
int ncclBroadcast(const void *send, void *receive, size_t count, int type, int root, struct comm *comm, void *stream) {
    return add((struct op){ BROADCAST, comm, send, receive, count, type, 0, root, stream });
}
int ncclAllGather(const void *send, void *receive, size_t count, int type, struct comm *comm, void *stream) {
    return add((struct op){ ALL_GATHER, comm, send, receive, count, type, 0, 0, stream });
}
int ncclSend(const void *send, size_t count, int type, int peer, struct comm *comm, void *stream) {
    return add((struct op){ SEND, comm, send, NULL, count, type, 0, peer, stream });
}
int ncclRecv(void *receive, size_t count, int type, int peer, struct comm *comm, void *stream) {
    return add((struct op){ RECEIVE, comm, NULL, receive, count, type, 0, peer, stream });
}
#if FAKE_VERSION >= 22800
int ncclAlltoAll(const void *send, void *receive, size_t count, int type, struct comm *comm, void *stream) {
    return add((struct op){ ALL_TO_ALL, comm, send, receive, count, type, 0, 0, stream });
}
int ncclGather(const void *send, void *receive, size_t count, int type, int root, struct comm *comm, void *stream) {
    return add((struct op){ GATHER, comm, send, receive, count, type, 0, root, stream });
}
int ncclScatter(const void *send, void *receive, size_t count, int type, int root, struct comm *comm, void *stream) {
    return add((struct op){ SCATTER, comm, send, receive, count, type, 0, root, stream });
}
#endif

int ncclRedOpCreatePreMulSum(int *op, const void *scalar, int type, int residence, struct comm *comm) {
    number bits = load(scalar, 0, (int)element(type));
    int kind = float_kind(type);
    if (residence != 1 || comm->scalars == 16) return fail(INVALID_ARGUMENT, "no such scalar");
    if (kind < 0) comm->bits[comm->scalars] = bits;
    else comm->scalar[comm->scalars] = decode(bits, kind);
    *op = 5 + comm->scalars++;
    return SUCCESS;
}
int ncclRedOpDestroy(int op, struct comm *comm) { return op < 5 + comm->scalars ? SUCCESS : INVALID_ARGUMENT; }

#if FAKE_VERSION >= 21900
int ncclMemAlloc(void **memory, size_t bytes) { return posix_memalign(memory, 4096, bytes) ? SYSTEM_ERROR : SUCCESS; }
int ncclMemFree(void *memory) { free(memory); return SUCCESS; }
int ncclCommRegister(struct comm *comm, void *memory, size_t bytes, void **handle) {
    (void)bytes, *handle = comm;
    return memory ? SUCCESS : INVALID_ARGUMENT;
}
int ncclCommDeregister(struct comm *comm, void *handle) { return handle == comm ? SUCCESS : INVALID_ARGUMENT; }
#endif
#if FAKE_VERSION >= 22700
int ncclCommWindowRegister(struct comm *comm, void *memory, size_t bytes, void **window, int flags) {
    (void)bytes, *window = comm;
    return flags == 1 && (uintptr_t)memory % 4096 == 0 ? SUCCESS : INVALID_ARGUMENT;
}
int ncclCommWindowDeregister(struct comm *comm, void *window) { return window == comm ? SUCCESS : INVALID_ARGUMENT; }
#endif
