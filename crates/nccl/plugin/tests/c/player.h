/* What programs that play NCCL's part for a tuner or profiler share: checks, and NCCL's logger. */
#pragma once

#include "nccl_net.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(condition, ...) \
  do { \
    if (!(condition)) { \
      fprintf(stderr, "line %d: ", __LINE__), fprintf(stderr, __VA_ARGS__), fprintf(stderr, "\n"); \
      exit(1); \
    } \
  } while (0)
#define OK(call) CHECK((call) == SUCCESS, "%s is an error", #call)

static void logger(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
  (void)flags, (void)file, (void)line;
  va_list arguments;
  va_start(arguments, format);
  fprintf(stderr, level == LOG_WARN ? "WARN " : "INFO ");
  vfprintf(stderr, format, arguments);
  fprintf(stderr, "\n");
  va_end(arguments);
}
