/* `nanovllm version`: what a report of a fault needs to know of this program and machine. The first
 * line is all that `nanovllm --version` prints. */
#include <string.h>
#include <unistd.h>

#include "api/devices.h"
#include "base/os/file.h"
#include "cmd/commands.h"
#include "cmd/model/model_place.h"

enum { WIDTH = 9 }; // of the titles

static enum status append_paths(struct buf *out, struct err *err) {
    char path[FILE_PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", path, sizeof path - 1);
    enum status status = OK;
    if (len > 0) status = buf_appendf(out, err, "%-*s%.*s\n", WIDTH, "program", (int)len, path);
    if (status || !model_place_bundled(path)) return status;
    return buf_appendf(out, err, "%-*s%s\n", WIDTH, "models", path);
}

static enum status format(struct buf *out, bool is_short, struct err *err) {
    enum status status = buf_appendf(out, err, "nanovllm %s\n", nvllm_version());
    if (status || is_short) return status;
    status = append_paths(out, err);
    if (!status) status = api_devices_describe(out, WIDTH, err);
    if (status) return status;
    return buf_appendf(out, err, "%-*s%s\n", WIDTH, "build", BUILD_OPTIONS); // src/CMakeLists.txt
}

int version_print(bool is_short) {
    struct buf out = {0};
    struct err err = {0};
    int exit_code =
        format(&out, is_short, &err) ? cli_error("%s", err.message) : cli_print(out.data, out.len);
    buf_fini(&out);
    return exit_code;
}
