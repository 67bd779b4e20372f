/* A net plugin for tests: one TCP socket per connection, no threads, version 8 of NCCL's interface. It keeps NCCL's rules,
 * but for those that the variable BREAK names, with commas between them:
 *
 *   connect     accept waits for the other end
 *   listen      closing an unused listener is an error
 *   order       every tenth message is delivered with the bytes of its predecessor
 *   sizes       test tells the size of the room instead of the message's
 *   untold      test tells no size, as Google's FastSocket
 *   truncation  what does not fit is dropped without an error
 *   overrun     what does not fit is written behind the room
 *   tags        every message of a group has the first tag's room
 *   requests    two requests per connection
 *   busy        a request too many is an error, as in NCCL's socket transport
 *   both-ways   a send is complete before isend comes back
 *   flush       a flush never ends
 *   no-flush    a flush is an error, as in NCCL's socket transport
 *   close       closing waits for requests under way
 *   peer-death  an end of the connection is not noticed
 *   crash       the first message ends the process
 *   init, devices, name  the call fails, finds nothing, or says nothing
 *
 * What is no breach: gpu offers GPU memory, alone takes no grouped receives, and the variable REQUESTS says how many requests a
 * connection takes.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SUCCESS = 0, SYSTEM_ERROR = 2, INTERNAL_ERROR = 3, INVALID_USAGE = 5, REMOTE_ERROR = 6 };
enum { MOST_REQUESTS = 64, MOST_GROUPED = 4, HANDLE_BYTES = 128 };

typedef void (*logger)(int level, unsigned long flags, const char *file, int line, const char *format, ...);
static logger say;

static int breaks(const char *rule) {
    const char *broken = getenv("BREAK");
    size_t length = strlen(rule);
    while (broken != NULL && (strncmp(broken, rule, length) != 0 || (broken[length] != ',' && broken[length] != '\0'))) {
        broken = strchr(broken, ',');
        broken = broken == NULL ? NULL : broken + 1;
    }
    return broken != NULL;
}

struct listener {
    int socket;
};

/* A message on the wire: this, then its bytes. */
struct header {
    uint32_t tag;
    uint32_t size;
};

struct part {
    char *data;
    uint32_t room;
    uint32_t tag;
    uint32_t size;
    int done;
};

struct request {
    struct connection *connection;
    struct part parts[MOST_GROUPED];
    int n;
    int used;
    int flush;
    uint64_t number;
};

struct connection {
    int socket;
    int sends;
    uint64_t posted;
    /* The message in transfer: its header, and how much of both has moved. */
    struct header header;
    size_t moved;
    struct part *part;
    uint64_t messages;
    struct request requests[MOST_REQUESTS];
};

static void set_options(int socket) {
    int one = 1;
    setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (breaks("both-ways")) {
        /* Else a kernel may hold a whole message, and nobody waits. */
        int room = 128 << 10;
        setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
        setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    }
    fcntl(socket, F_SETFL, fcntl(socket, F_GETFL) | O_NONBLOCK);
    fcntl(socket, F_SETFD, FD_CLOEXEC);
}

static int init(logger log) {
    say = log;
    if (breaks("init")) {
        say(3, 0x10, __FILE__, __LINE__, "NET/Simple : \033[31mlooking\033[0m for lo\n");
        say(2, ~0ul, __FILE__, __LINE__, "NET/Simple : no network on day %d", 1);
        say(3, 0x10, __FILE__, __LINE__, "NET/Simple : gave up");
        return SYSTEM_ERROR;
    }
    say(3, 0x10, __FILE__, __LINE__, "NET/Simple : Using lo");
    return SUCCESS;
}

static int devices(int *count) {
    *count = breaks("devices") ? 0 : 1;
    return SUCCESS;
}

struct properties {
    char *name;
    char *pci_path;
    uint64_t guid;
    int ptr_support, reg_is_global, speed, port;
    float latency;
    int max_comms, max_recvs, device_type, device_version;
};

static int get_properties(int device, struct properties *found) {
    memset(found, 0, sizeof *found);
    found->name = breaks("name") ? NULL : "lo";
    found->guid = (uint64_t)device;
    found->ptr_support = breaks("gpu") ? 3 : 1;
    found->speed = 10000;
    found->max_comms = 1024;
    found->max_recvs = breaks("alone") ? 1 : MOST_GROUPED;
    return SUCCESS;
}

static int listen_on(int device, void *handle, void **out) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    struct listener *listener = calloc(1, sizeof *listener);
    (void)device;
    listener->socket = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(listener->socket, (struct sockaddr *)&address, length) != 0 || listen(listener->socket, 8) != 0) {
        return SYSTEM_ERROR;
    }
    getsockname(listener->socket, (struct sockaddr *)&address, &length);
    memset(handle, 0, HANDLE_BYTES);
    memcpy(handle, &address, sizeof address);
    if (!breaks("connect")) {
        set_options(listener->socket);
    }
    *out = listener;
    return SUCCESS;
}

static struct connection *connection_of(int socket, int sends) {
    struct connection *connection = calloc(1, sizeof *connection);
    connection->socket = socket;
    connection->sends = sends;
    set_options(socket);
    return connection;
}

static int connect_to(int device, void *handle, void **out, void **offload) {
    struct sockaddr_in address;
    int peer = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    (void)device;
    (void)offload;
    *out = NULL;
    memcpy(&address, handle, sizeof address);
    /* On the loopback interface the kernel answers at once. */
    if (connect(peer, (struct sockaddr *)&address, sizeof address) != 0) {
        say(2, ~0ul, __FILE__, __LINE__, "NET/Simple : connect to port %d: %s", ntohs(address.sin_port), strerror(errno));
        close(peer);
        return SYSTEM_ERROR;
    }
    *out = connection_of(peer, 1);
    return SUCCESS;
}

static int accept_from(void *opaque, void **out, void **offload) {
    struct listener *listener = opaque;
    int peer = accept(listener->socket, NULL, NULL);
    (void)offload;
    *out = peer < 0 ? NULL : connection_of(peer, 0);
    return SUCCESS;
}

static int register_memory(void *connection, void *data, size_t size, int kind, void **registration) {
    (void)connection, (void)data, (void)size;
    *registration = (void *)1;
    return kind == 1 ? SUCCESS : INTERNAL_ERROR;
}

static int register_dmabuf(void *c, void *d, size_t s, int k, uint64_t o, int f, void **r) {
    (void)c, (void)d, (void)s, (void)k, (void)o, (void)f, (void)r;
    return INTERNAL_ERROR;
}

static int deregister(void *connection, void *registration) {
    (void)connection, (void)registration;
    return SUCCESS;
}

static struct request *new_request(struct connection *connection) {
    const char *given = getenv("REQUESTS");
    int most = breaks("requests") ? 2 : given != NULL ? atoi(given) : MOST_REQUESTS;
    for (int i = 0; i < most; i++) {
        struct request *request = &connection->requests[i];
        if (!request->used) {
            memset(request, 0, sizeof *request);
            request->connection = connection;
            request->used = 1;
            request->number = connection->posted++;
            return request;
        }
    }
    return NULL;
}

/* The part that the next message belongs to: of the earliest request, the one with its tag. */
static struct part *next_part(struct connection *connection, uint32_t tag) {
    struct request *earliest = NULL;
    for (int i = 0; i < MOST_REQUESTS; i++) {
        struct request *request = &connection->requests[i];
        int open = 0;
        for (int p = 0; p < request->n; p++) {
            open |= !request->parts[p].done;
        }
        if (request->used && open && (earliest == NULL || request->number < earliest->number)) {
            earliest = request;
        }
    }
    for (int p = 0; earliest != NULL && p < earliest->n; p++) {
        struct part *part = &earliest->parts[p];
        if (!part->done && (connection->sends || part->tag == tag || breaks("tags"))) {
            return part;
        }
    }
    return NULL;
}

static int gone(ssize_t moved) {
    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) {
        return SUCCESS;
    }
    if (breaks("peer-death")) {
        return SUCCESS;
    }
    say(2, ~0ul, __FILE__, __LINE__, "NET/Simple : the peer is gone");
    return REMOTE_ERROR;
}

static int send_some(struct connection *connection) {
    struct part *part;
    while ((part = next_part(connection, 0)) != NULL) {
        struct header header = {part->tag, part->size};
        ssize_t moved;
        if (breaks("crash")) {
            abort();
        }
        if (connection->moved < sizeof header) {
            const char *rest = (const char *)&header + connection->moved;
            moved = send(connection->socket, rest, sizeof header - connection->moved, MSG_NOSIGNAL);
        } else {
            size_t at = connection->moved - sizeof header;
            if (at == part->size) {
                part->done = 1;
                connection->moved = 0;
                continue;
            }
            moved = send(connection->socket, part->data + at, part->size - at, MSG_NOSIGNAL);
        }
        if (moved <= 0) {
            return gone(moved);
        }
        connection->moved += (size_t)moved;
    }
    return SUCCESS;
}

static int begin_message(struct connection *connection) {
    connection->part = next_part(connection, connection->header.tag);
    if (connection->part == NULL) {
        return SUCCESS;
    }
    connection->messages++;
    connection->part->size = connection->header.size;
    if (connection->header.size > connection->part->room && !breaks("truncation") && !breaks("overrun")) {
        say(2, ~0ul, __FILE__, __LINE__, "NET/Simple : %u bytes for a room of %u", connection->header.size,
            connection->part->room);
        return INVALID_USAGE;
    }
    return SUCCESS;
}

static int receive_some(struct connection *connection) {
    static char dropped[65536];
    for (;;) {
        struct part *part = connection->part;
        ssize_t moved;
        if (part == NULL && connection->moved == sizeof connection->header) {
            int result = begin_message(connection);
            if (result != SUCCESS || connection->part == NULL) {
                return result;
            }
        } else if (part == NULL) {
            char *rest = (char *)&connection->header + connection->moved;
            moved = recv(connection->socket, rest, sizeof connection->header - connection->moved, 0);
            if (moved <= 0) {
                return gone(moved);
            }
            connection->moved += (size_t)moved;
        } else {
            size_t at = connection->moved - sizeof connection->header, left = part->size - at;
            size_t room = breaks("overrun") ? part->size : part->room;
            if (left == 0) {
                if (breaks("order") && connection->messages % 10 == 0 && part->size > 0) {
                    memset(part->data, 1, part->size < part->room ? part->size : part->room);
                }
                if (part->size > part->room) {
                    part->size = part->room;
                }
                part->done = 1;
                connection->part = NULL;
                connection->moved = 0;
                continue;
            }
            if (at < room) {
                moved = recv(connection->socket, part->data + at, left < room - at ? left : room - at, 0);
            } else {
                moved = recv(connection->socket, dropped, left < sizeof dropped ? left : sizeof dropped, 0);
            }
            if (moved <= 0) {
                return gone(moved);
            }
            connection->moved += (size_t)moved;
        }
    }
}

static int progress(struct connection *connection) {
    return connection->sends ? send_some(connection) : receive_some(connection);
}

static int is_done(const struct request *request) {
    for (int p = 0; p < request->n; p++) {
        if (!request->parts[p].done) {
            return 0;
        }
    }
    return !(request->flush && breaks("flush"));
}

static int isend(void *opaque, void *data, int size, int tag, void *registration, void **out) {
    struct connection *connection = opaque;
    struct request *request = new_request(connection);
    (void)registration;
    *out = request;
    if (request == NULL) {
        return breaks("busy") ? INTERNAL_ERROR : SUCCESS;
    }
    request->n = 1;
    request->parts[0] = (struct part){.data = data, .size = (uint32_t)size, .tag = (uint32_t)tag};
    while (breaks("both-ways") && !is_done(request)) {
        int result = progress(connection);
        if (result != SUCCESS) {
            return result;
        }
    }
    return SUCCESS;
}

static int irecv(void *opaque, int n, void **data, int *sizes, int *tags, void **registrations, void **out) {
    struct connection *connection = opaque;
    struct request *request = new_request(connection);
    (void)registrations;
    *out = request;
    if (request == NULL) {
        return breaks("busy") ? INTERNAL_ERROR : SUCCESS;
    }
    request->n = n;
    for (int p = 0; p < n; p++) {
        request->parts[p] = (struct part){.data = data[p], .room = (uint32_t)sizes[p], .tag = (uint32_t)tags[p]};
    }
    return SUCCESS;
}

static int iflush(void *opaque, int n, void **data, int *sizes, void **registrations, void **out) {
    struct request *request = breaks("flush") ? new_request(opaque) : NULL;
    (void)n, (void)data, (void)sizes, (void)registrations;
    if (breaks("no-flush")) {
        return INTERNAL_ERROR;
    }
    if (request != NULL) {
        request->flush = 1;
    }
    *out = request;
    return SUCCESS;
}

static int test(void *opaque, int *done, int *sizes) {
    struct request *request = opaque;
    int result = is_done(request) ? SUCCESS : progress(request->connection);
    *done = 0;
    if (result != SUCCESS) {
        return result;
    }
    if (is_done(request)) {
        for (int p = 0; sizes != NULL && !breaks("untold") && p < request->n; p++) {
            int room = breaks("sizes") && !request->connection->sends;
            sizes[p] = (int)(room ? request->parts[p].room : request->parts[p].size);
        }
        request->used = 0;
        *done = 1;
    }
    return SUCCESS;
}

static int close_connection(void *opaque) {
    struct connection *connection = opaque;
    for (int i = 0; breaks("close") && i < MOST_REQUESTS; i++) {
        while (connection->requests[i].used && !is_done(&connection->requests[i])) {
            progress(connection);
        }
    }
    close(connection->socket);
    free(connection);
    return SUCCESS;
}

static int close_listener(void *opaque) {
    struct listener *listener = opaque;
    int unused = breaks("listen") && accept(listener->socket, NULL, NULL) < 0;
    close(listener->socket);
    free(listener);
    return unused ? INTERNAL_ERROR : SUCCESS;
}

struct plugin {
    const char *name;
    int (*init)(logger);
    int (*devices)(int *);
    int (*get_properties)(int, struct properties *);
    int (*listen)(int, void *, void **);
    int (*connect)(int, void *, void **, void **);
    int (*accept)(void *, void **, void **);
    int (*reg_mr)(void *, void *, size_t, int, void **);
    int (*reg_mr_dmabuf)(void *, void *, size_t, int, uint64_t, int, void **);
    int (*dereg_mr)(void *, void *);
    int (*isend)(void *, void *, int, int, void *, void **);
    int (*irecv)(void *, int, void **, int *, int *, void **, void **);
    int (*iflush)(void *, int, void **, int *, void **, void **);
    int (*test)(void *, int *, int *);
    int (*close_send)(void *);
    int (*close_recv)(void *);
    int (*close_listen)(void *);
    int (*get_device_mr)(void *, void *, void **);
    int (*irecv_consumed)(void *, int, void *);
};

const struct plugin ncclNetPlugin_v8 = {
    "Simple", init,    devices, get_properties, listen_on, connect_to, accept_from,      register_memory,  register_dmabuf, deregister,
    isend,    irecv,   iflush,  test,           close_connection,      close_connection, close_listener,   NULL,            NULL,
};
