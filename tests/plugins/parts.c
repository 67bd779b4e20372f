/* A tuner and a profiler for tests, without a network. They keep NCCL's rules, but for those that the variable BREAK names, one at a
 * time. A process serves one version, as some plugins do: NCCL takes one.
 *
 *   choose      getCollInfo is an error for the largest operations
 *   impossible  what NCCL cannot do is made the cheapest
 *   none        no algorithm is left
 *   beside      a cost is written behind the table
 *   chunk       chunks of no bytes
 *   ranks       the choice depends on the process
 *   shared      all communicators share one context
 *   table       a table that is not there is an error of init
 *   own         one channel where nothing was measured, as NCCL's example
 *   twice       to end a context again ends the process
 *   events      no event can begin
 *   mask        each init asks for other events
 *   parent      the parent of an operation is followed
 *   full        an event waits where there is no room
 *   child       a child of a fork cannot tell events
 *   again       to be loaded a second time ends the process
 */
#include "../../crates/nccl/plugin/tests/c/nccl_profiler.h"
#include "../../crates/nccl/plugin/tests/c/nccl_tuner.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int breaks(const char *rule) {
    const char *broken = getenv("BREAK");
    return broken != NULL && strcmp(broken, rule) == 0;
}

static void serve(int version) {
    static int served;
    if (served != 0 && served != version) abort();
    served = version;
}

__attribute__((constructor)) static void loaded(void) {
    if (breaks("again") && getenv("PARTS_LOADED") != NULL) abort();
    setenv("PARTS_LOADED", "1", 1);
}

/* How many communicators live. */
struct context {
    int lives;
};

static struct context shared = {1};

static result_t begin(void **context, uint64_t id, size_t ranks, size_t nodes, logger_t log, domains_t *domains,
                      constants_t *constants) {
    (void)id, (void)ranks, (void)nodes, (void)log, (void)domains, (void)constants;
    const char *table = getenv("NCCL_TUNER_CONFIG_FILE");
    if (breaks("table") && table != NULL && access(table, R_OK) != 0) return SYSTEM_ERROR;
    struct context *own = breaks("shared") ? &shared : malloc(sizeof *own);
    own->lives = 1;
    *context = own;
    return SUCCESS;
}

static result_t tuner_init(void **context, uint64_t id, size_t ranks, size_t nodes, logger_t log, domains_t *domains,
                           constants_t *constants) {
    serve(6);
    return begin(context, id, ranks, nodes, log, domains, constants);
}

static result_t tuner_init_v5(void **context, uint64_t id, size_t ranks, size_t nodes, logger_t log, domains_t *domains,
                              constants_t *constants) {
    serve(5);
    return begin(context, id, ranks, nodes, log, domains, constants);
}

static result_t choose(void *context, int function, size_t bytes, int operations, float **costs, int algorithms, int protocols,
                       int registered, int *channels) {
    (void)function, (void)operations, (void)registered;
    struct context *own = context;
    if (own == NULL || !own->lives) return INTERNAL_ERROR;
    float(*table)[PROTOCOLS] = (float(*)[PROTOCOLS])costs;
    if (breaks("choose") && bytes > 1u << 30) return INTERNAL_ERROR;
    if (breaks("impossible")) table[PAT][SIMPLE] = 0;
    if (breaks("none"))
        for (int i = 0; i < algorithms * protocols; i++) table[i / protocols][i % protocols] = -1;
    if (breaks("beside")) table[algorithms][0] = 1;
    if (breaks("ranks")) *channels = getpid();
    if (breaks("own")) *channels = 1;
    return SUCCESS;
}

static result_t chunk_size(void *context, int function, size_t bytes, int algorithm, int protocol, int channels, size_t *chunk) {
    (void)context, (void)function, (void)bytes, (void)algorithm, (void)protocol, (void)channels;
    if (breaks("chunk")) *chunk = 0;
    return SUCCESS;
}

static result_t finalize(void *context) {
    struct context *own = context;
    if (own == NULL) return SUCCESS;
    if (breaks("twice") && !own->lives) abort();
    /* It is not freed, so that who comes late is told and does no harm. */
    own->lives = 0;
    return SUCCESS;
}

static pid_t started;
static long begun;

static result_t profiler_init(void **context, uint64_t id, int *mask, const char *name, int nodes, int ranks, int rank, logger_t log) {
    (void)id, (void)name, (void)nodes, (void)ranks, (void)log;
    struct context *own = malloc(sizeof *own);
    own->lives = 1;
    serve(6);
    *context = own;
    *mask = breaks("mask") && rank == 2 ? COLL : COLL | PROXY_OP | PROXY_STEP | COLL_API;
    started = getpid();
    return SUCCESS;
}

static result_t start(void *context, void **handle, descr_v6 *event) {
    static int some;
    (void)context;
    *handle = NULL;
    if (breaks("events") || (breaks("child") && getpid() != started)) return INTERNAL_ERROR;
    if (breaks("parent") && event->type == PROXY_OP && event->parentObj != NULL) *(volatile int *)event->parentObj += 1;
    if (breaks("full") && __atomic_add_fetch(&begun, 1, __ATOMIC_RELAXED) > 5000) pause();
    *handle = &some;
    return SUCCESS;
}

static result_t stop(void *handle) {
    (void)handle;
    return SUCCESS;
}

static result_t record(void *handle, int state, state_args *arguments) {
    (void)handle, (void)state, (void)arguments;
    return SUCCESS;
}

/* An event of version 1, of which NCCL 2.23 to 2.26 tell how far it is. */
struct event {
    int type, done;
};

static result_t profiler_init_v1(void **context, int *mask) {
    static struct context own = {1};
    serve(1);
    *context = &own;
    *mask = COLL | PROXY_OP | PROXY_STEP;
    return SUCCESS;
}

static result_t start_v1(void *context, void **handle, descr_v1 *event) {
    (void)context;
    struct event *own = calloc(1, sizeof *own);
    own->type = event->type;
    *handle = own;
    return SUCCESS;
}

static result_t stop_v1(void *handle) {
    struct event *own = handle;
    if (own->type == PROXY_OP && !own->done) abort();
    free(own);
    return SUCCESS;
}

static result_t record_v1(void *handle, int state, state_args *arguments) {
    enum { SEND_DONE = 3, RECV_DONE = 7 };
    struct event *own = handle;
    const struct {
        size_t bytes;
        int steps;
    } *progress = (const void *)arguments;
    if (state == SEND_DONE || state == RECV_DONE) own->done = progress->steps;
    return SUCCESS;
}

const tuner_v5 ncclTunerPlugin_v5 = {.name = "parts", .init = tuner_init_v5, .getCollInfo = choose, .finalize = finalize};
const tuner_v6 ncclTunerPlugin_v6 = {
    .name = "parts", .init = tuner_init, .getCollInfo = choose, .finalize = finalize, .getChunkSize = chunk_size};
const profiler_v6 ncclProfiler_v6 = {
    .name = "parts", .init = profiler_init, .startEvent = start, .stopEvent = stop, .recordEventState = record, .finalize = finalize};
const profiler_v1 ncclProfiler_v1 = {.name = "parts", .init = profiler_init_v1, .startEvent = start_v1, .stopEvent = stop_v1,
                                     .recordEventState = record_v1, .finalize = finalize};
