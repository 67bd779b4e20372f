/* Plays NCCL's part for the tuner: tune LIBRARY VERSION RANKS NODES DOMAINS. Each line of its input is an operation,
 * "FUNCTION BYTES OPERATIONS REGISTERED"; it prints "ALGORITHM PROTOCOL CHANNELS CHUNK" as NCCL would go by, and what the tuner
 * logs on standard error. Calls and choice are those of ncclGetAlgoInfo and topoGetAlgoInfo in NCCL 2.30. */
#include "nccl_tuner.h"
#include "player.h"
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHUNK = 131072, THREADS = 4, REPEATED = 2000 };
static const float IGNORE = -1.0f;

static union {
  tuner_v2 *v2;
  tuner_v3 *v3;
  tuner_v4 *v4;
  tuner_v5 *v5;
  tuner_v6 *v6;
} table;
static int version, ranks, nodes, domains;

static void *init(void) {
  void *context = NULL;
  static constants_t constants;
  domains_t d = {domains, ranks / domains, ranks / domains};
  switch (version) {
    case 2: OK(table.v2->init(ranks, nodes, logger, &context)); break;
    case 3: OK(table.v3->init(ranks, nodes, logger, &context)); break;
    case 4: OK(table.v4->init(ranks, nodes, logger, &context)); break;
    case 5: OK(table.v5->init(&context, 4711, ranks, nodes, logger, &d, &constants)); break;
    default: OK(table.v6->init(&context, 4711, ranks, nodes, logger, &d, &constants));
  }
  return context;
}

static void finalize(void *context) {
  switch (version) {
    case 2: OK(table.v2->destroy(context)); break;
    case 3: OK(table.v3->destroy(context)); break;
    case 4: OK(table.v4->destroy(context)); break;
    case 5: OK(table.v5->finalize(context)); break;
    default: OK(table.v6->finalize(context));
  }
}

/* What NCCL might think that an operation costs: rings and trees are there, NVLS where hosts have NVSwitches and blocks or sums
 * are moved, and small sizes go by LL. */
static void fill(float costs[ALGORITHMS][PROTOCOLS], int function, size_t bytes) {
  for (int a = 0; a < ALGORITHMS; a++)
    for (int p = 0; p < PROTOCOLS; p++) costs[a][p] = IGNORE;
  float latency[PROTOCOLS] = {8, 14, 30}, bandwidth[PROTOCOLS] = {2, 3.5f, 4};
  for (int p = 0; p < PROTOCOLS; p++) {
    costs[RING][p] = 1.5f * latency[p] + bytes / bandwidth[p] / 1e4f;
    if (function == ALL_REDUCE) costs[TREE][p] = latency[p] + bytes / bandwidth[p] / 0.9e4f;
  }
  if (function == ALL_REDUCE || function == ALL_GATHER || function == REDUCE_SCATTER)
    costs[NVLS][SIMPLE] = 60 + bytes / 3.9f / 1e4f;
}

typedef struct {
  int algorithm, protocol, channels;
  size_t chunk;
} choice_t;

static choice_t choose(void *context, int function, size_t bytes, int operations, int registered) {
  float costs[ALGORITHMS][PROTOCOLS], before[ALGORITHMS][PROTOCOLS];
  fill(costs, function, bytes);
  memcpy(before, costs, sizeof costs);
  choice_t choice = {-1, -1, 0, CHUNK};
  int algorithm = -1, protocol = -1, changed = 0;
  float **rows = (float **)costs;
  switch (version) {
    case 2:
      OK(table.v2->getCollInfo(context, function, bytes, 0, costs[NVLS][SIMPLE] != IGNORE, operations, &algorithm, &protocol,
                               &choice.channels));
      if (algorithm >= 0 && protocol >= 0 && costs[algorithm][protocol] != IGNORE) costs[algorithm][protocol] = 0;
      break;
    case 3:
      OK(table.v3->getCollInfo(context, function, bytes, operations, rows, ALGORITHMS, PROTOCOLS, &choice.channels));
      break;
    case 4:
      OK(table.v4->getCollInfo(context, function, bytes, operations, rows, ALGORITHMS, PROTOCOLS, registered, &choice.channels));
      break;
    case 5:
      OK(table.v5->getCollInfo(context, function, bytes, operations, rows, ALGORITHMS, PROTOCOLS, registered, &choice.channels));
      break;
    default:
      OK(table.v6->getCollInfo(context, function, bytes, operations, rows, ALGORITHMS, PROTOCOLS, registered, &choice.channels));
  }
  float least = 3e38f;
  for (int a = 0; a < ALGORITHMS; a++)
    for (int p = 0; p < PROTOCOLS; p++) {
      if (costs[a][p] != before[a][p]) {
        changed++;
        CHECK(before[a][p] >= 0 && costs[a][p] >= 0, "the impossible was chosen, or a cost made impossible");
      }
      if (costs[a][p] >= 0 && costs[a][p] < least) least = costs[a][p], choice.algorithm = a, choice.protocol = p;
    }
  CHECK(changed <= 1, "%d costs were changed", changed);
  if (version >= 6)
    OK(table.v6->getChunkSize(context, function, bytes, choice.algorithm, choice.protocol, choice.channels, &choice.chunk));
  return choice;
}

static void *many(void *context) {
  choice_t first = choose(context, ALL_REDUCE, 4096, 1, 0);
  for (int i = 0; i < REPEATED; i++) {
    void *own = init();
    choice_t again = choose(i % 2 ? own : context, ALL_REDUCE, 4096, 1, 0);
    finalize(own);
    CHECK(again.algorithm == first.algorithm && again.protocol == first.protocol && again.channels == first.channels,
          "threads choose differently");
  }
  return NULL;
}

int main(int count, char **words) {
  CHECK(count == 6, "tune LIBRARY VERSION RANKS NODES DOMAINS");
  version = atoi(words[2]), ranks = atoi(words[3]), nodes = atoi(words[4]), domains = atoi(words[5]);
  void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  CHECK(library, "%s", dlerror());
  char symbol[32];
  snprintf(symbol, sizeof symbol, "ncclTunerPlugin_v%d", version);
  table.v2 = dlsym(library, symbol);
  CHECK(table.v2 && strcmp(table.v2->name, "busbw") == 0, "%s", symbol);
  void *context = init();
  int function, operations, registered;
  size_t bytes;
  while (scanf("%d %zu %d %d", &function, &bytes, &operations, &registered) == 4) {
    choice_t choice = choose(context, function, bytes, operations, registered);
    printf("%d %d %d %zu\n", choice.algorithm, choice.protocol, choice.channels, choice.chunk);
  }
  fflush(stdout);
  /* Several threads, a child of a fork, contexts that are ended twice or were never there: never an error, never a crash. */
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, many, context);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  pid_t child = fork();
  if (child == 0) {
    choose(context, ALL_REDUCE, 4096, 1, 0);
    _exit(0);
  }
  int status = 1;
  CHECK(waitpid(child, &status, 0) == child && status == 0, "the child of a fork ended with %d", status);
  choose(context, 99, 4096, 1, 0);
  finalize(context);
  finalize(context);
  finalize(NULL);
  choose(context, ALL_REDUCE, 4096, 1, 0);
  choose((void *)words, ALL_REDUCE, 4096, 1, 0);
  return 0;
}
