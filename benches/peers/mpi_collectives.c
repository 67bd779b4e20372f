// Times one collective of an MPI library, by the rule of nccl-tests: per size some warm-up calls, a barrier, then
// calls back to back; the mean time of a call, averaged over the ranks. Elements are floats, reductions are sums.
//
//   mpirun -np N mpi_collectives COLLECTIVE SIZE:ITERATIONS:WARMUP...
//
// SIZE is in bytes and means what it means in nccl-tests: the whole buffer of a rank, for all_gather, reduce_scatter and
// alltoall that of all ranks. Rank 0 prints a line "SIZE MICROSECONDS" per size.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct buffers {
    float *send;
    float *receive;
};

typedef void (*collective)(struct buffers, int count, int ranks);

static void all_reduce(struct buffers b, int count, int ranks) {
    (void)ranks;
    MPI_Allreduce(b.send, b.receive, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void all_gather(struct buffers b, int count, int ranks) {
    MPI_Allgather(b.send, count / ranks, MPI_FLOAT, b.receive, count / ranks, MPI_FLOAT, MPI_COMM_WORLD);
}

static void reduce_scatter(struct buffers b, int count, int ranks) {
    MPI_Reduce_scatter_block(b.send, b.receive, count / ranks, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

// MPI's broadcast is always in place.
static void broadcast(struct buffers b, int count, int ranks) {
    (void)ranks;
    MPI_Bcast(b.receive, count, MPI_FLOAT, 0, MPI_COMM_WORLD);
}

static void alltoall(struct buffers b, int count, int ranks) {
    MPI_Alltoall(b.send, count / ranks, MPI_FLOAT, b.receive, count / ranks, MPI_FLOAT, MPI_COMM_WORLD);
}

static const struct {
    const char *name;
    collective run;
} collectives[] = {{"all_reduce", all_reduce},
                   {"all_gather", all_gather},
                   {"reduce_scatter", reduce_scatter},
                   {"broadcast", broadcast},
                   {"alltoall", alltoall}};

static void fail(int rank, const char *what, const char *argument) {
    if (rank == 0) fprintf(stderr, "mpi_collectives: %s: %s\n", what, argument);
    MPI_Finalize();
    exit(2);
}

static collective find(const char *name) {
    for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++) {
        if (strcmp(collectives[i].name, name) == 0) return collectives[i].run;
    }
    return NULL;
}

static double mean_time_us(collective run, struct buffers b, int count, int ranks, long iterations, long warmup) {
    for (long i = 0; i < warmup; i++) run(b, count, ranks);
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (long i = 0; i < iterations; i++) run(b, count, ranks);
    double mean = (MPI_Wtime() - start) / (double)iterations, sum = 0;
    MPI_Reduce(&mean, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    return sum / ranks * 1e6;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3) fail(rank, "wanted", "COLLECTIVE SIZE:ITERATIONS:WARMUP...");
    collective run = find(argv[1]);
    if (run == NULL) fail(rank, "no such collective", argv[1]);

    long largest = 0;
    for (int i = 2; i < argc; i++) {
        long size, iterations, warmup;
        if (sscanf(argv[i], "%ld:%ld:%ld", &size, &iterations, &warmup) != 3 || size < 4 || size % 4 != 0 ||
            size > (1L << 32) || iterations < 1 || warmup < 0)
            fail(rank, "wanted SIZE:ITERATIONS:WARMUP", argv[i]);
        if (size > largest) largest = size;
    }
    struct buffers b = {malloc((size_t)largest), malloc((size_t)largest)};
    if (b.send == NULL || b.receive == NULL) fail(rank, "out of memory", argv[1]);
    for (long i = 0; i < largest / 4; i++) b.send[i] = b.receive[i] = 1;

    for (int i = 2; i < argc; i++) {
        long size, iterations, warmup;
        sscanf(argv[i], "%ld:%ld:%ld", &size, &iterations, &warmup);
        double time_us = mean_time_us(run, b, (int)(size / 4), ranks, iterations, warmup);
        if (rank == 0) {
            printf("%ld %.4f\n", size, time_us);
            fflush(stdout);
        }
    }
    free(b.send);
    free(b.receive);
    MPI_Finalize();
}
