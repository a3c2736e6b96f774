/* The Open MPI half of bench/spmd.py: one rank for each device, blocking collectives, and copies of memory, which bound
 * what any collective can reach.
 *
 *   mpirun -n RANKS spmd_mpi FOLDER SETS
 *
 * Each rank reads commands from the named pipe FOLDER/RANK, so that a rank that waits for one takes no CPU, which it
 * would inside of MPI. A command is a line "OPERATION BYTES TIMES COUNT": make COUNT x TIMES calls, one after the other.
 * Rank 0 answers with one line of JSON, the seconds that all ranks took together. An unknown operation, or no memory, ends the
 * program. What BYTES means is in spmd_cases.py.
 *
 * With SETS of 0, all calls use the same two buffers. Otherwise each of the TIMES calls has an operand of its own, and
 * SETS results that take turns, like the JAX program whose collectives do not take each other's results.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

static int rank, ranks;

static void fail(const char* what, const char* which) {
  fprintf(stderr, "spmd_mpi: %s: %s\n", what, which);
  MPI_Abort(MPI_COMM_WORLD, 1);
  exit(1);
}

/* As the collectives store large results: a line that is written whole is not read before. */
static void copy_past_caches(const void* from, void* to, size_t bytes) {
#ifdef __SSE2__
  const __m128i* source = from;
  __m128i* target = to;
  for (size_t i = 0; i < bytes / sizeof(__m128i); ++i)
    _mm_stream_si128(target + i, _mm_loadu_si128(source + i));
  _mm_sfence();
#else
  memcpy(to, from, bytes);
#endif
}

/* Of `count` floats in all: a part is count / ranks. */
static void call(const char* operation, const float* from, float* to, int count) {
  const int part = count / ranks;
  const int next = (rank + 1) % ranks, last = (rank + ranks - 1) % ranks;
  if (strcmp(operation, "copy") == 0) {
    copy_past_caches(from, to, (size_t)count * sizeof(float));
  } else if (strcmp(operation, "all-reduce") == 0) {
    MPI_Allreduce(from, to, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (strcmp(operation, "all-gather") == 0) {
    MPI_Allgather(from, part, MPI_FLOAT, to, part, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (strcmp(operation, "reduce-scatter") == 0) {
    MPI_Reduce_scatter_block(from, to, part, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  } else if (strcmp(operation, "all-to-all") == 0) {
    MPI_Alltoall(from, part, MPI_FLOAT, to, part, MPI_FLOAT, MPI_COMM_WORLD);
  } else if (strcmp(operation, "permute") == 0) {
    MPI_Sendrecv(from, count, MPI_FLOAT, next, 0, to, count, MPI_FLOAT, last, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
  } else {
    fail("no such operation", operation);
  }
}

/* The floats of `length` operands and `length * sets` results, `count` each. Without sets: two buffers that change places,
 * as values do in a chain of calls. */
struct buffers {
  float *operands, *results;
  int count;
  long length, sets;
};

static void call_number(const char* operation, const struct buffers* in, long i) {
  const size_t count = (size_t)in->count;
  if (in->sets == 0) {
    call(operation, i % 2 ? in->results : in->operands, i % 2 ? in->operands : in->results,
         in->count);
  } else {
    call(operation, in->operands + count * (size_t)(i % in->length),
         in->results + count * (size_t)(i % (in->length * in->sets)), in->count);
  }
}

/* Seconds from the first rank's begin to the last one's end of `calls` calls, on rank 0. */
static double measure(const char* operation, const struct buffers* in, long calls) {
  MPI_Barrier(MPI_COMM_WORLD);
  const double began = MPI_Wtime();
  for (long i = 0; i < calls; ++i) call_number(operation, in, i);
  MPI_Barrier(MPI_COMM_WORLD);
  const double mine = MPI_Wtime() - began;
  double longest = 0;  /* that of the rank which began first */
  MPI_Reduce(&mine, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
  return longest;
}

static float* room(size_t bytes) {
  float* memory = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
  if (memory == NULL) fail("no memory", "of a command");
  for (size_t i = 0; i < bytes / sizeof(float); ++i) memory[i] = 1.0F;
  return memory;
}

static struct buffers make_buffers(size_t bytes, long times, long sets) {
  struct buffers made = {.count = (int)(bytes / sizeof(float)), .length = sets ? times : 1, .sets = sets};
  made.operands = room(bytes * (size_t)made.length);
  made.results = room(bytes * (size_t)made.length * (size_t)(sets ? sets : 1));
  return made;
}

static void free_buffers(const struct buffers* made) {
  free(made->operands);
  free(made->results);
}

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  if (argc != 3) fail("usage", "spmd_mpi FOLDER SETS");
  const long sets = strtol(argv[2], NULL, 10);
  char path[4096];
  snprintf(path, sizeof(path), "%s/%d", argv[1], rank);
  FILE* commands = fopen(path, "r");
  if (commands == NULL) fail("cannot open", path);

  char operation[32];
  size_t bytes = 0, held = 0;
  long times = 0, count = 0;
  struct buffers buffers = {0};
  while (fscanf(commands, "%31s %zu %ld %ld", operation, &bytes, &times, &count) == 4) {
    if (bytes != held) {
      free_buffers(&buffers);
      buffers = make_buffers(bytes, times, sets);
      held = bytes;
    }
    const double seconds = measure(operation, &buffers, times * count);
    if (rank == 0) {
      printf("{\"seconds\": %.9f}\n", seconds);
      fflush(stdout);
    }
  }
  free_buffers(&buffers);
  fclose(commands);
  MPI_Finalize();
  return 0;
}
