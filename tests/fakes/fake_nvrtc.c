/* A fake of NVRTC for tests, built as libnvrtc.so.12: it looks at what it should compile, and gives what the fake driver
   takes for code. FAKE_NVRTC_FAILS makes it refuse. */

#include <stdlib.h>
#include <string.h>

static const char CODE[] = "fake code";
static const char LOG[] = "busbw.cu(1): error:\n  the fake compiler refuses\n";

int nvrtcVersion(int *major, int *minor) { *major = 12, *minor = 8; return 0; }
int nvrtcGetNumSupportedArchs(int *count) { *count = 3; return 0; }
int nvrtcGetSupportedArchs(int *known) { known[0] = 70, known[1] = 80, known[2] = 90; return 0; }
int nvrtcCreateProgram(void **program, const char *source, const char *name, int count, const char *const *headers,
                       const char *const *names) {
    (void)name, (void)headers, (void)names;
    *program = strdup(source);
    return count;
}
int nvrtcDestroyProgram(void **program) { free(*program); *program = NULL; return 0; }
int nvrtcCompileProgram(void *program, int count, const char *const *options) {
    int i, known = 0;
    for (i = 0; i < count; i++)
        known += !strncmp(options[i], "--gpu-architecture=", 19) || !strcmp(options[i], "-DBLOCK=1024") ||
                 !strcmp(options[i], "-DSTARTS=8192");
    return getenv("FAKE_NVRTC_FAILS") || known != 3 || !strstr(program, "busbw_fill") ? 6 : 0;
}
int nvrtcGetProgramLogSize(void *program, size_t *bytes) { (void)program; *bytes = sizeof LOG; return 0; }
int nvrtcGetProgramLog(void *program, char *log) { (void)program; memcpy(log, LOG, sizeof LOG); return 0; }
int nvrtcGetCUBINSize(void *program, size_t *bytes) { (void)program; *bytes = sizeof CODE; return 0; }
int nvrtcGetCUBIN(void *program, char *code) { (void)program; memcpy(code, CODE, sizeof CODE); return 0; }
int nvrtcGetPTXSize(void *program, size_t *bytes) { (void)program; *bytes = sizeof CODE; return 0; }
int nvrtcGetPTX(void *program, char *code) { (void)program; memcpy(code, CODE, sizeof CODE); return 0; }
