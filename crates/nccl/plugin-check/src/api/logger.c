/* The logger that plugins are handed, as NCCL would hand them its own (ncclDebugLogger_t): it makes a line of a message and
 * gives it to Rust. */
#include <stdarg.h>
#include <stdio.h>

void busbw_plugin_log_line(int level, const char *line);

void busbw_plugin_logger(int level, unsigned long flags, const char *file, int line, const char *format, ...) {
    char text[1024];
    va_list arguments;
    (void)flags;
    (void)file;
    (void)line;
    if (format == NULL) {
        return;
    }
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    busbw_plugin_log_line(level, text);
}
