/* Plays NCCL's part: loads the plugin in two processes, connects them both ways, and looks whether the rules of the
 * interface hold. play LIBRARY VERSION; prints what failed and exits 1, or exits 0. */
#include "versions.h"
#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SECONDS = 300, BIG = 8 << 20, MESSAGES = 1000, GROUP = 8, TAG = 7 };

static net_t net;
static void *context;
static int side;      /* 0 or 1 */
static int bootstrap; /* to the other side */
static char warning[1024];
static int warnings;

#define CHECK(condition, ...) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "side %d, line %d: %s: ", side, __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__); \
      fprintf(stderr, "; last warning: %s\n", warning); \
      _exit(1); \
    } \
  } while (0)
#define OK(call) CHECK((call) == SUCCESS, "no success")

static void logger(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
  (void)flags, (void)file, (void)line;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  CHECK(strncmp(text, "NET/busbw : ", 12) == 0, "logged %s", text);
  if (level != LOG_WARN) return;
  memcpy(warning, text, sizeof warning);
  warnings++;
}

static void tell(const void *data, size_t size) { CHECK(write(bootstrap, data, size) == (ssize_t)size, "bootstrap"); }

static void hear(void *data, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t n = read(bootstrap, (char *)data + done, size - done);
    CHECK(n > 0, "the other side is gone");
    done += (size_t)n;
  }
}

static void meet(void) {
  char byte = 1;
  tell(&byte, 1);
  hear(&byte, 1);
}

typedef struct {
  void *sender, *receiver, *listener;
} pair_t;

/* Listens, swaps handles, connects and accepts, as NCCL's proxy does: neither call may wait for the other side. */
static pair_t connect_both(int device) {
  pair_t pair = {NULL, NULL, NULL};
  char own[HANDLE_BYTES], theirs[HANDLE_BYTES];
  OK(net.listen(context, device, own, &pair.listener));
  CHECK(pair.listener, "listen must give a listener at once");
  OK(net.accept(pair.listener, &pair.receiver));
  CHECK(!pair.receiver, "accepted a connection that nobody has made");
  tell(own, sizeof own);
  hear(theirs, sizeof theirs);
  while (!pair.sender || !pair.receiver) {
    if (!pair.sender) OK(net.connect(context, device, theirs, &pair.sender));
    if (!pair.receiver) OK(net.accept(pair.listener, &pair.receiver));
    sched_yield();
  }
  OK(net.closeListen(pair.listener));
  return pair;
}

static void close_both(pair_t pair) {
  meet();
  OK(net.closeSend(pair.sender));
  OK(net.closeRecv(pair.receiver));
}

static void fill(unsigned char *data, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) data[i] = (unsigned char)(i * 131 + (i >> 9) + seed * 2654435761u);
}

static void verify(const unsigned char *data, size_t size, unsigned seed) {
  for (size_t i = 0; i < size; i++) {
    unsigned char expected = (unsigned char)(i * 131 + (i >> 9) + seed * 2654435761u);
    CHECK(data[i] == expected, "message %u: byte %zu of %zu is %u instead of %u", seed, i, size, data[i], expected);
  }
}

static void *isend(pair_t pair, void *data, size_t size, int tag) {
  void *request = NULL, *registration = NULL;
  OK(net.regMr(pair.sender, data, size ? size : 1, PTR_HOST, &registration));
  OK(net.isend(pair.sender, data, size, tag, registration, &request));
  OK(net.deregMr(pair.sender, registration));
  return request;
}

static void *irecv(pair_t pair, void *room, size_t size, int tag) {
  void *request = NULL, *registration = NULL;
  OK(net.irecv(pair.receiver, 1, &room, &size, &tag, &registration, &request));
  return request;
}

static int test(void *request, int *sizes) {
  int done = -1;
  OK(net.test(request, &done, sizes));
  CHECK(done == 0 || done == 1, "done is %d", done);
  return done;
}

static void wait_for(void *request, int *sizes) {
  while (!test(request, sizes)) sched_yield();
}

/* One message at a time, into rooms that are larger. */
static void sizes_smaller_than_posted(pair_t pair) {
  static const size_t sizes[] = {0, 1, 8, 4096, 65535, 65536, 65537, 1 << 20, BIG + 3, 0, 5};
  unsigned char *data = malloc(BIG + 4096), *room = malloc(BIG + 4096);
  for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    int sent = -1, received = -1;
    fill(data, sizes[i], i);
    memset(room, 0xEE, BIG + 4096);
    void *receive = irecv(pair, room, sizes[i] + (i % 3) * 1000, TAG);
    void *send = isend(pair, data, sizes[i], TAG);
    CHECK(send && receive, "busy although nothing is under way");
    for (int done = 0; done != 3;) {
      if (!(done & 1) && test(send, i % 2 ? &sent : NULL)) done |= 1;
      if (!(done & 2) && test(receive, &received)) done |= 2;
      sched_yield();
    }
    CHECK(received == (int)sizes[i], "received %d of %zu", received, sizes[i]);
    CHECK(i % 2 == 0 || sent == (int)sizes[i], "sent %d of %zu", sent, sizes[i]);
    verify(room, sizes[i], i);
    CHECK(room[sizes[i]] == 0xEE, "wrote past the message of %zu bytes", sizes[i]);
  }
  free(data);
  free(room);
}

/* As many requests as NCCL keeps under way are taken at once. */
static void thirty_two_under_way(pair_t pair) {
  enum { SIZE = 200000 };
  unsigned char *data = malloc(REQUESTS * SIZE), *rooms = malloc(REQUESTS * SIZE);
  void *sends[REQUESTS], *receives[REQUESTS];
  for (unsigned i = 0; i < REQUESTS; i++) {
    fill(data + i * SIZE, SIZE - i, i);
    receives[i] = irecv(pair, rooms + i * SIZE, SIZE, TAG);
    sends[i] = isend(pair, data + i * SIZE, SIZE - i, TAG);
    CHECK(sends[i] && receives[i], "request %u was refused", i);
    for (unsigned j = 0; j < i; j++) CHECK(sends[i] != sends[j] && receives[i] != receives[j], "one request twice");
  }
  for (unsigned i = 0; i < REQUESTS; i++) {
    int size = -1;
    while (!test(receives[i], &size)) {
      for (unsigned j = i; j < REQUESTS; j++) {
        if (sends[j] && test(sends[j], NULL)) sends[j] = NULL;
      }
      sched_yield();
    }
    CHECK(size == (int)(SIZE - i), "size %d", size);
    verify(rooms + i * SIZE, SIZE - i, i);
  }
  for (unsigned i = 0; i < REQUESTS; i++) {
    if (sends[i]) wait_for(sends[i], NULL);
  }
  free(data);
  free(rooms);
}

/* Beyond what it has room for, a request is null, and no error; there is room again once others are done. */
static void more_than_are_taken(pair_t pair) {
  enum { MOST = 4096 };
  static void *receives[MOST];
  static unsigned char rooms[MOST];
  unsigned char data = 42;
  unsigned taken = 0;
  while (taken < MOST && (receives[taken] = irecv(pair, rooms + taken, 1, TAG))) taken++;
  CHECK(taken >= REQUESTS && taken < MOST, "%u receives were taken", taken);
  for (unsigned i = 0; i < taken; i++) {
    void *send;
    while (!(send = isend(pair, &data, 1, TAG))) sched_yield();
    while (!test(send, NULL)) sched_yield();
  }
  for (unsigned i = 0; i < taken; i++) {
    wait_for(receives[i], NULL);
    CHECK(rooms[i] == 42, "message %u", i);
  }
  void *again = irecv(pair, rooms, 1, TAG), *send = isend(pair, &data, 1, TAG);
  CHECK(again && send, "no room, although all is done");
  wait_for(send, NULL);
  wait_for(again, NULL);
}

static size_t size_of_message(unsigned i) { return i % 50 == 0 ? 300000 + i : (i * 37) % 5000; }

/* Many messages of mixed sizes, with as many under way as are taken; a null request is tried again. */
static void many_messages(pair_t pair) {
  enum { ROOM = 302000, DEPTH = 64 };
  unsigned char *data = malloc((size_t)DEPTH * ROOM), *rooms = malloc((size_t)DEPTH * ROOM);
  void *sends[DEPTH], *receives[DEPTH];
  unsigned sent = 0, posted = 0, done_sending = 0, received = 0;
  while (done_sending < MESSAGES || received < MESSAGES) {
    if (sent < MESSAGES && sent < done_sending + DEPTH) {
      unsigned char *own = data + (size_t)(sent % DEPTH) * ROOM;
      fill(own, size_of_message(sent), sent);
      if ((sends[sent % DEPTH] = isend(pair, own, size_of_message(sent), TAG))) sent++;
    }
    if (posted < MESSAGES && posted < received + DEPTH) {
      unsigned char *own = rooms + (size_t)(posted % DEPTH) * ROOM;
      if ((receives[posted % DEPTH] = irecv(pair, own, ROOM, TAG))) posted++;
    }
    while (done_sending < sent && test(sends[done_sending % DEPTH], NULL)) done_sending++;
    int size = -1;
    while (received < posted && test(receives[received % DEPTH], &size)) {
      CHECK(size == (int)size_of_message(received), "message %u has %d bytes", received, size);
      verify(rooms + (size_t)(received % DEPTH) * ROOM, (size_t)size, received);
      received++;
    }
    sched_yield();
  }
  free(data);
  free(rooms);
}

/* Receives posted together: each message goes where its tag is, in whatever order they are sent. */
static void grouped_receives(pair_t pair) {
  enum { SIZE = 100000, ROUNDS = 6 };
  unsigned char *data = malloc((size_t)ROUNDS * GROUP * SIZE), *rooms = malloc((size_t)ROUNDS * GROUP * SIZE);
  void *receives[ROUNDS], *sends[ROUNDS][GROUP];
  for (unsigned round = 0; round < ROUNDS; round++) {
    void *pointers[GROUP], *registrations[GROUP] = {NULL};
    size_t sizes[GROUP];
    int tags[GROUP];
    for (int i = 0; i < GROUP; i++) {
      pointers[i] = rooms + (size_t)(round * GROUP + i) * SIZE;
      sizes[i] = SIZE;
      tags[i] = 100 + i;
    }
    receives[round] = NULL;
    OK(net.irecv(pair.receiver, GROUP, pointers, sizes, tags, registrations, &receives[round]));
    CHECK(receives[round], "the group %u was refused", round);
  }
  for (unsigned round = 0; round < ROUNDS; round++) {
    for (unsigned k = 0; k < GROUP; k++) {
      unsigned i = (k * 5 + round) % GROUP, message = round * GROUP + i; /* another order in each round */
      size_t size = i % 2 ? SIZE - message : i * 11;                   /* long and short, one empty */
      fill(data + (size_t)message * SIZE, size, message);
      sends[round][i] = isend(pair, data + (size_t)message * SIZE, size, 100 + (int)i);
      CHECK(sends[round][i], "refused");
    }
  }
  for (unsigned round = 0; round < ROUNDS; round++) {
    int sizes[32] = {0};
    int pending = 1;
    while (pending) {
      pending = !test(receives[round], sizes);
      for (unsigned r = 0; r < ROUNDS; r++) {
        for (unsigned i = 0; i < GROUP; i++) {
          if (sends[r][i] && test(sends[r][i], NULL)) sends[r][i] = NULL;
        }
      }
      sched_yield();
    }
    for (unsigned i = 0; i < GROUP; i++) {
      unsigned message = round * GROUP + i;
      int expected = (int)(i % 2 ? SIZE - message : i * 11);
      CHECK(sizes[i] == expected, "tag %u of group %u: %d bytes instead of %d", 100 + i, round, sizes[i], expected);
      verify(rooms + (size_t)message * SIZE, (size_t)expected, message);
    }
  }
  for (unsigned round = 0; round < ROUNDS; round++) {
    for (unsigned i = 0; i < GROUP; i++) {
      if (sends[round][i]) wait_for(sends[round][i], NULL);
    }
  }
  free(data);
  free(rooms);
}

/* The mark that NCCL leaves where it does not need to hear of completion is overwritten by a real request. */
static void optional_completion(pair_t pair) {
  unsigned char data[64], room[64];
  size_t size = sizeof room;
  int tag = TAG, received = -1;
  void *pointer = room, *registration = NULL, *request = OPTIONAL_RECV_COMPLETION;
  fill(data, sizeof data, 5);
  OK(net.irecv(pair.receiver, 1, &pointer, &size, &tag, &registration, &request));
  CHECK(request && request != OPTIONAL_RECV_COMPLETION, "no request");
  void *send = isend(pair, data, sizeof data, TAG);
  wait_for(send, NULL);
  wait_for(request, &received);
  CHECK(received == sizeof data, "%d bytes", received);
  verify(room, sizeof room, 5);
  void *flush = &size;
  OK(net.iflush(pair.receiver, 1, &pointer, &received, &registration, &flush));
  if (flush) wait_for(flush, NULL);
}

/* A message that is too long is an error for its receiver, and nothing is written behind the room. */
static void truncation(void) {
  pair_t pair = connect_both(0);
  unsigned char data[100], room[200];
  memset(room, 0xEE, sizeof room);
  fill(data, sizeof data, 1);
  void *receive = irecv(pair, room, 10, TAG), *send = isend(pair, data, sizeof data, TAG);
  CHECK(send && receive, "refused");
  int done = 0;
  result_t result;
  warning[0] = 0;
  while ((result = net.test(receive, &done, NULL)) == SUCCESS && !done) sched_yield();
  CHECK(result != SUCCESS && !done, "a message of 100 bytes was taken for 10");
  CHECK(strstr(warning, "100 bytes where 10 bytes"), "the log does not say why");
  CHECK(strstr(warning, "127.0.0.1:"), "the log does not name the peer");
  CHECK(room[10] == 0xEE, "written behind the room");
  warning[0] = 0;
  CHECK(net.test(receive, &done, NULL) != SUCCESS, "the connection is usable again");
  CHECK(!warning[0], "the same error is logged twice");
  close_both(pair);
}

/* Closing does not wait for what is under way, and a listener may go while somebody connects to it. */
static void closing(void) {
  pair_t pair = connect_both(0);
  unsigned char *data = calloc(1, BIG), *room = calloc(1, BIG);
  CHECK(irecv(pair, room, BIG, TAG), "refused");
  for (int i = 0; i < 8; i++) isend(pair, data, BIG, TAG);
  close_both(pair);
  free(data);
  free(room);

  char handle[HANDLE_BYTES];
  void *listener, *sender = NULL;
  OK(net.listen(context, 0, handle, &listener));
  OK(net.connect(context, 0, handle, &sender));
  OK(net.closeListen(listener));
  if (sender) OK(net.closeSend(sender));
}

/* What NCCL would only do by mistake is refused, not followed. */
static void mistakes(void) {
  char handle[HANDLE_BYTES] = "this is the handle of another plugin";
  void *object = NULL;
  int done;
  device_t device;
  CHECK(net.listen(context, 99, handle, &object) != SUCCESS, "device 99");
  CHECK(net.describe(-1, &device) != SUCCESS, "device -1");
  CHECK(net.connect(context, 0, handle, &object) != SUCCESS, "a foreign handle");
  CHECK(strstr(warning, "none of busbw's"), "the log does not say why");
  CHECK(net.test(NULL, &done, NULL) != SUCCESS, "no request");
  CHECK(net.regMr(NULL, handle, sizeof handle, PTR_CUDA, &object) != SUCCESS, "memory of a GPU");
}

/* A traffic class that is not possible is told, but not with each of the many calls that make a connection. */
static void impossible_traffic_class(int version) {
  char handle[HANDLE_BYTES];
  void *own = NULL, *listener, *sender = NULL;
  int before = warnings;
  OK(net.init(&own, 300, logger));
  OK(net.listen(own, 0, handle, &listener));
  /* Each call begins a connection of its own, or goes on with one. */
  for (int i = 0; i < 10; i++) {
    OK(net.connect(own, 0, handle, &sender));
    if (sender) OK(net.closeSend(sender));
    sender = NULL;
  }
  CHECK(warnings - before == (version >= 10), "told %d times", warnings - before);
  OK(net.closeListen(listener));
  OK(net.finalize(own));
}

static void play(const char *path, int version) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  CHECK(library, "%s", dlerror());
  CHECK(net_of_version(library, version, &net), "no version %d", version);
  OK(net.init(&context, version % 2 ? TRAFFIC_CLASS_UNDEF : 32, logger));
  int devices = 0;
  OK(net.devices(&devices));
  CHECK(devices > 0, "no device");
  for (int i = 0; i < devices; i++) {
    device_t device;
    OK(net.describe(i, &device));
    CHECK(device.name[0] && device.ptrSupport & PTR_HOST && device.speed > 0, "device %d", i);
    CHECK(device.maxComms > 0 && device.maxRecvs > 0, "device %d", i);
  }
  mistakes();
  pair_t pair = connect_both(0);
  sizes_smaller_than_posted(pair);
  thirty_two_under_way(pair);
  more_than_are_taken(pair);
  many_messages(pair);
  grouped_receives(pair);
  optional_completion(pair);
  close_both(pair);
  truncation();
  closing();
  impossible_traffic_class(version);
  meet();
  OK(net.finalize(context));
  CHECK(dlclose(library) == 0, "%s", dlerror());
}

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 2;
  pid_t child = fork();
  side = child == 0;
  bootstrap = ends[side];
  close(ends[!side]);
  alarm(SECONDS);
  play(argv[1], atoi(argv[2]));
  if (side) return 0;
  int status = 1;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
