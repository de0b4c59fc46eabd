// JSONL input of generate: any bytes give requests and refusals that name their line, and whatever
// was read makes a result line that is one line of valid JSON.
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/json/jread.h"
#include "cmd/generate/prompt_source.h"
#include "cmd/generate/result_line.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

// The input as a file that can be read: longer than a pipe holds, and without touching a disk.
static int file_with(const uint8_t *data, size_t size) {
    int fd = memfd_create("fuzz_jsonl", MFD_CLOEXEC);
    CHECK(fd >= 0, "memfd_create failed");
    CHECK(write(fd, data, size) == (ssize_t)size, "size=%zu", size);
    CHECK(lseek(fd, 0, SEEK_SET) == 0, "lseek failed");
    return fd;
}

static void check_result(struct request_line *line, const char *error) {
    char message[sizeof((struct err *)0)->message];
    struct result result = {.first = {.finish_reason = NVLLM_FINISH_ERROR, .stop_token_id = -1},
                            .num_top = -1};
    result.prompt_ids = line->prompt_token_ids;
    result.num_prompt_ids = line->num_prompt_token_ids;
    if (line->sampling.num_stop) {
        result.first.stop_string = (char *)(uintptr_t)line->sampling.stop[0];
    }
    if (error) {
        memcpy(message, error, strlen(error) + 1);
        result.error = message;
    }
    CHECK(buf_append(&result.first.text, line->prompt, line->prompt_len, NULL) == OK,
          "out of memory");
    struct buf out = {0};
    CHECK(result_line_format(&out, &result, NULL) == OK, "out of memory");
    CHECK(memchr(out.data, '\n', out.len) == out.data + out.len - 1, "more than one line");
    json_t *root = NULL;
    struct err fault = {0};
    CHECK(jread_request(&root, out.data, out.len, "the line", &fault) == OK, "%s: %s",
          fault.message, out.data);
    json_decref(root);
    buf_fini(&out);
    buf_fini(&result.first.text);
}

// What goes to the library has messages, whatever they are.
static void check_chat(const struct request_line *line) {
    CHECK(!line->chat || json_object_get(line->chat, "messages"), "line %llu",
          (unsigned long long)line->line_number);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const struct nvllm_sampling_params sampling = NVLLM_SAMPLING_PARAMS_INIT;
    // The first byte decides what --chat and its companions would have given.
    const struct request_defaults defaults = {
        .sampling = &sampling,
        .chat = {.wrap_prompts = size && data[0] & 1, .system = size && data[0] & 2 ? "s" : NULL}};
    struct prompt_source source = {.defaults = &defaults, .fd = file_with(data, size)};
    line_reader_init(&source.reader, source.fd, "input", 2000);
    for (;;) {
        enum source_state state = SOURCE_END;
        struct request_line line = {0};
        struct err err = {0};
        enum status status = prompt_source_next(&source, true, &state, &line, &err);
        CHECK(status == OK, "%s", err.message);
        if (state == SOURCE_END) break;
        CHECK(state != SOURCE_WAIT, "a file made the reader wait");
        CHECK(state == SOURCE_REQUEST || strncmp(err.message, "line ", 5) == 0, "%s", err.message);
        check_chat(&line);
        check_result(&line, state == SOURCE_REFUSED ? err.message : NULL);
        request_line_fini(&line);
    }
    prompt_source_close(&source);
    return 0;
}
