#include "backend/gpu_choice.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

bool gpu_choice_parse_list(struct gpu_choice *out, const char *text) {
    const size_t digits_max = 4;
    uint32_t count = 0;
    for (;; text++) {
        size_t digits = strspn(text, "0123456789");
        if (digits < 1 || digits > digits_max || count == GPU_CHOICE_MAX) return false;
        out->listed[count++] = (uint16_t)strtoul(text, NULL, 10);
        text += digits;
        if (!*text) break;
        if (*text != ',') return false;
    }
    out->count = count;
    return true;
}

bool gpu_choice_parse(struct gpu_choice *out, const char *kind, const char *device) {
    size_t length = strlen(kind);
    *out = (struct gpu_choice){.kind = kind};
    if (!device || strcmp(device, "auto") == 0 || strcmp(device, kind) == 0) return true;
    if (strncmp(device, kind, length) != 0 || device[length] != ':') return false;
    return gpu_choice_parse_list(out, device + length + 1);
}

enum status gpu_choice_check(const struct gpu_choice *choice, uint32_t num_ranks, struct err *err) {
    if (choice->count <= 1 || choice->count == num_ranks) return OK;
    return err_set(err, ERR_INVALID, "device %s lists %u GPUs, but this host has %u rank%s",
                   choice->kind, choice->count, num_ranks, num_ranks == 1 ? "" : "s");
}

enum status gpu_choice_of_rank(const struct gpu_choice *choice, uint32_t rank_on_host,
                               uint32_t num_gpus, uint32_t *gpu, struct err *err) {
    CHECK(choice->count <= 1 || rank_on_host < choice->count, "rank %u of %u", rank_on_host,
          choice->count);
    uint32_t first = choice->listed[0]; // 0 where there is none
    *gpu = choice->count > 1 ? choice->listed[rank_on_host] : first + rank_on_host;
    if (*gpu < num_gpus) return OK;
    return err_set(err, ERR_UNSUPPORTED, "device %s: %sthere is no GPU %u (of %u)", choice->kind,
                   choice->count > 1 ? "" : "each rank needs a GPU of its own, and ", *gpu,
                   num_gpus);
}

uint32_t gpu_choice_num_sharing(const struct gpu_choice *choice, uint32_t gpu) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < choice->count; i++) count += choice->listed[i] == gpu;
    return count ? count : 1;
}
