#include "backend/gpu_choice.h"

#include <stdlib.h>
#include <string.h>

#include "base/check.h"

// "3" or "0,2" to the end of the text.
static bool parse_list(struct gpu_choice *out, const char *text) {
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

bool gpu_choice_parse(struct gpu_choice *out, const char *device) {
    const char prefix[] = "cuda:";
    *out = (struct gpu_choice){0};
    if (!device || strcmp(device, "auto") == 0 || strcmp(device, "cuda") == 0) return true;
    if (strncmp(device, prefix, strlen(prefix)) != 0) return false;
    return parse_list(out, device + strlen(prefix));
}

enum status gpu_choice_check(const struct gpu_choice *choice, uint32_t num_ranks, struct err *err) {
    if (choice->count <= 1 || choice->count == num_ranks) return OK;
    return err_set(err, ERR_INVALID, "device cuda lists %u GPUs, but this host has %u ranks",
                   choice->count, num_ranks);
}

enum status gpu_choice_of_rank(const struct gpu_choice *choice, uint32_t rank_on_host,
                               uint32_t num_gpus, uint32_t *gpu, struct err *err) {
    CHECK(choice->count <= 1 || rank_on_host < choice->count, "rank %u of %u", rank_on_host,
          choice->count);
    uint32_t first = choice->listed[0]; // 0 where there is none
    *gpu = choice->count > 1 ? choice->listed[rank_on_host] : first + rank_on_host;
    if (*gpu < num_gpus) return OK;
    return err_set(err, ERR_UNSUPPORTED, "device cuda: %sthere is no GPU %u (of %u)",
                   choice->count > 1 ? "" : "each rank needs a GPU of its own, and ", *gpu,
                   num_gpus);
}

uint32_t gpu_choice_num_sharing(const struct gpu_choice *choice, uint32_t gpu) {
    uint32_t count = 0;
    for (uint32_t i = 0; i < choice->count; i++) count += choice->listed[i] == gpu;
    return count ? count : 1;
}
