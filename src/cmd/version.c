/* What a report of a fault needs: the version, paths, devices, build options. */
#include <stdio.h>
#include <unistd.h>

#include "api/devices.h"
#include "base/os/file.h"
#include "base/text/buf.h"
#include "cmd/cli.h"
#include "cmd/commands.h"
#include "cmd/model/model_place.h"
#include "cmd/options/options.h"

enum { WIDTH = 9 }; // of the titles

static const char details[] =
    "Prints the version, where the program and its own models lie, the devices that can run\n"
    "models, and how the program was built. nanovllm --version prints the first line alone.\n";

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

static int print(bool is_short) {
    struct buf out = {0};
    struct err err = {0};
    int exit_code =
        format(&out, is_short, &err) ? cli_error("%s", err.message) : cli_print(out.data, out.len);
    buf_fini(&out);
    return exit_code;
}

int version_print_short(void) {
    return print(true);
}

int cmd_version(int argc, char **argv) {
    struct options options = {.command = "version", .synopsis = "", .details = details};
    int exit_code;
    if (!cli_parse(&options, argc, argv, &exit_code)) return exit_code;
    if (options.num_args) {
        return cli_usage_error(&options, "unexpected argument %s", options.args[0]);
    }
    return print(false);
}
