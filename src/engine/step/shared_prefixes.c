#include "engine/step/shared_prefixes.h"

#include <stdlib.h>
#include <string.h>

// Steps with shared prefixes are not recorded. Below these limits that costs more than is saved, as
// measured on one device.
static const struct shared_prefix_limits default_limits = {
    .min_rows = 16, .min_positions = 512, .min_saved = 65536};

enum status shared_prefix_finder_init(struct shared_prefix_finder *f, uint32_t max_rows,
                                      struct err *err) {
    *f = (struct shared_prefix_finder){
        .limits = default_limits, .max_rows = max_rows, .num_heads = 1};
    while (f->num_heads < 2 * (size_t)max_rows) f->num_heads *= 2;
    f->rows = calloc(max_rows, sizeof *f->rows);
    f->heads = calloc(f->num_heads, sizeof *f->heads);
    f->next = calloc(max_rows, sizeof *f->next);
    f->is_done = calloc(max_rows, sizeof *f->is_done);
    f->common = calloc(max_rows, sizeof *f->common);
    f->seqs = calloc(max_rows, sizeof *f->seqs);
    bool has_all = f->rows && f->heads && f->next && f->is_done && f->common && f->seqs;
    return has_all ? OK : err_nomem(err, "shared prefixes");
}

void shared_prefix_finder_fini(struct shared_prefix_finder *f) {
    free(f->rows);
    free(f->heads);
    free(f->next);
    free(f->is_done);
    free(f->common);
    free(f->seqs);
    *f = (struct shared_prefix_finder){0};
}

// The list of rows with this block, by Fibonacci hashing.
static uint32_t *head_of(const struct shared_prefix_finder *f, uint32_t block) {
    uint64_t product = block * UINT64_C(0x9e3779b97f4a7c15);
    return &f->heads[(product >> 32) & (f->num_heads - 1)];
}

// Puts the rows with enough blocks into lists, each in ascending order.
static void make_lists(struct shared_prefix_finder *f, uint32_t min_blocks) {
    memset(f->heads, 0, f->num_heads * sizeof *f->heads);
    for (uint32_t row = f->num_rows; row-- > 0;) {
        f->is_done[row] = f->rows[row].num_blocks < min_blocks;
        if (f->is_done[row]) continue;
        uint32_t *head = head_of(f, f->rows[row].blocks[min_blocks - 1]);
        f->next[row] = *head;
        *head = row + 1;
    }
}

static uint32_t num_common(const struct shared_prefix_row *a, const struct shared_prefix_row *b) {
    enum { PART = 16 };
    uint32_t n = a->num_blocks < b->num_blocks ? a->num_blocks : b->num_blocks, i = 0;
    while (i + PART <= n && !memcmp(a->blocks + i, b->blocks + i, PART * sizeof *a->blocks)) {
        i += PART;
    }
    while (i < n && a->blocks[i] == b->blocks[i]) i++;
    return i;
}

// The longest first; of the same length, in the order of rows.
static bool comes_before(const struct common_row *a, const struct common_row *b) {
    return a->num_blocks != b->num_blocks ? a->num_blocks > b->num_blocks : a->row < b->row;
}

// Shell sort. glibc's qsort allocates memory for so many rows, and the step loop allocates nothing.
static void sort_rows(struct common_row *rows, uint32_t count) {
    uint32_t gap = 1;
    while (gap < count / 3) gap = 3 * gap + 1;
    for (; gap; gap /= 3) {
        for (uint32_t i = gap; i < count; i++) {
            const struct common_row row = rows[i];
            uint32_t to = i;
            for (; to >= gap && comes_before(&row, &rows[to - gap]); to -= gap) {
                rows[to] = rows[to - gap];
            }
            rows[to] = row;
        }
    }
}

// Fills `common` with the rows that share at least min_blocks blocks with `leader`, which is the
// first of them and not in an earlier list. Returns how many there are.
static uint32_t compare_rows(struct shared_prefix_finder *f, uint32_t leader, uint32_t min_blocks) {
    uint32_t count = 0, block = f->rows[leader].blocks[min_blocks - 1];
    bool is_sorted = true;
    for (uint32_t at = leader + 1; at; at = f->next[at - 1]) {
        uint32_t row = at - 1;
        if (f->is_done[row] || f->rows[row].blocks[min_blocks - 1] != block) continue;
        uint32_t num_blocks = num_common(&f->rows[leader], &f->rows[row]);
        if (num_blocks < min_blocks) continue;
        if (count && num_blocks > f->common[count - 1].num_blocks) is_sorted = false;
        f->common[count++] = (struct common_row){.row = row, .num_blocks = num_blocks};
    }
    if (!is_sorted) sort_rows(f->common, count);
    return count;
}

// Finds the prefix of `leader` that saves most. If none saves enough, returns how many rows were
// compared in vain, else 0.
static uint32_t find_prefix(struct shared_prefix_finder *f, uint32_t leader, uint32_t min_blocks,
                            uint32_t block_size) {
    uint32_t count = compare_rows(f, leader, min_blocks), num_rows = 0;
    uint64_t most = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t saved = (uint64_t)i * f->common[i].num_blocks * block_size;
        if (i + 1 < f->limits.min_rows || saved < f->limits.min_saved || saved <= most) continue;
        most = saved;
        num_rows = i + 1;
    }
    f->is_done[leader] = true;
    if (!num_rows) return count - 1; // without the leader
    for (uint32_t i = 0; i < num_rows; i++) f->is_done[f->common[i].row] = true;
    f->prefixes[f->num_prefixes++] = (struct shared_prefix){
        .first = f->num_seqs,
        .num_seqs = num_rows,
        .num_positions = f->common[num_rows - 1].num_blocks * block_size,
    };
    for (uint32_t i = 0; i < num_rows; i++) {
        f->seqs[f->num_seqs++] = f->rows[f->common[i].row].seq;
    }
    return 0;
}

void shared_prefix_finder_find(struct shared_prefix_finder *f, uint32_t block_size) {
    enum { IN_VAIN_MAX = 8 }; // comparisons for each row: all rows with all could take long
    uint32_t min_blocks = (f->limits.min_positions + block_size - 1) / block_size;
    uint64_t in_vain = 0, most = IN_VAIN_MAX * (uint64_t)f->num_rows;
    f->num_prefixes = f->num_seqs = 0;
    if (!min_blocks) min_blocks = 1;
    if (f->num_rows < f->limits.min_rows) return;
    make_lists(f, min_blocks);
    for (uint32_t row = 0; row < f->num_rows && f->num_prefixes < SHARED_PREFIXES_MAX; row++) {
        if (f->is_done[row]) continue;
        in_vain += find_prefix(f, row, min_blocks, block_size);
        if (in_vain >= most) return;
    }
}
