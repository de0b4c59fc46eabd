// The flat batch: each row finds its biases, its mask and its token counts, in any copy of the
// block and for vocabularies whose masks end within a word; of block tables it has what changed;
// the largest step fits.
#include "engine/step/batch.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/compiler.h"
#include "engine/draft/draft_options.h"
#include "engine/params/params.h"
#include "support/cmocka_all.h"

enum {
    NUM_SEQS = 5,
    NUM_KV_GROUPS = 2,
    PADDED_SEQS = 8,
    BLOCK_SIZE = 4,
    BLOCKS_MAX = 3,
    TOKENS_MAX = BLOCK_SIZE * BLOCKS_MAX
};

// Sequences of one step, each with a sampling of its own.
struct fixture {
    struct backend *backend;
    struct step_limits limits;
    uint32_t vocab_size, mask_words;
    struct sampling samplings[NUM_SEQS];
    struct sequence *seqs[NUM_SEQS];
    struct scheduled items[NUM_SEQS];
    struct schedule schedule;
    int32_t tables[NUM_KV_GROUPS * PADDED_SEQS * BLOCKS_MAX]; // as a device keeps them
    struct batch batch;
};

static struct batch_row row_of(const struct sequence *seq) {
    return (struct batch_row){seq->user, (uint32_t)seq->id * 10};
}

// Sequence i runs num_tokens[i] tokens and samples.
static void init(struct fixture *f, uint32_t vocab_size, const uint32_t num_tokens[NUM_SEQS]) {
    const struct backend_options options = {
        .device = "cpu", .cpu_isa = "auto", .threads = 1, .weight_dtype = DTYPE_BF16};
    *f = (struct fixture){
        .limits = {.max_num_tokens = NUM_SEQS * TOKENS_MAX,
                   .max_num_seqs = NUM_SEQS,
                   .max_positions = TOKENS_MAX,
                   .max_blocks_per_seq = BLOCKS_MAX,
                   .num_kv_groups = NUM_KV_GROUPS},
        .vocab_size = vocab_size,
        .mask_words = (vocab_size + 31) / 32,
    };
    assert_int_equal(backend_create(&f->backend, &options, NULL), OK);
    assert_int_equal(batch_init(&f->batch, f->backend, &f->limits, vocab_size, NULL, NULL), OK);
    f->schedule = (struct schedule){
        .items = f->items, .num_items = NUM_SEQS, .max_items = NUM_SEQS, .num_prefill_tokens = 1};
    for (uint32_t i = 0; i < NUM_SEQS; i++) {
        int32_t prompt[TOKENS_MAX];
        for (int32_t k = 0; k < TOKENS_MAX; k++) prompt[k] = (int32_t)(100 * i) + k;
        assert_int_equal(sequence_create(&f->seqs[i], i + 1, prompt, num_tokens[i], 1, BLOCK_SIZE,
                                         NUM_KV_GROUPS, NULL),
                         OK);
        f->seqs[i]->user = &f->samplings[i];
        f->items[i] =
            (struct scheduled){.seq = f->seqs[i], .num_tokens = num_tokens[i], .needs_token = true};
        for (uint32_t g = 0; g < NUM_KV_GROUPS; g++) {
            for (uint32_t b = 0; b * BLOCK_SIZE < num_tokens[i]; b++) {
                sequence_table(f->seqs[i], g)[b] = (g * NUM_SEQS + i) * BLOCKS_MAX + b;
            }
        }
        f->seqs[i]->table_row = NUM_SEQS - 1 - i;
    }
}

static void fini(struct fixture *f) {
    for (uint32_t i = 0; i < NUM_SEQS; i++) {
        sequence_destroy(f->seqs[i]);
        sampling_fini(&f->samplings[i]);
    }
    batch_fini(&f->batch, f->backend);
    backend_destroy(f->backend);
}

static void add_biases(struct sampling *sampling, uint32_t count, uint32_t i) {
    sampling->biases = malloc(count * sizeof *sampling->biases);
    assert_non_null(sampling->biases);
    sampling->row.bias_count = count;
    for (uint32_t k = 0; k < count; k++) {
        sampling->biases[k] = (struct sample_bias){(int32_t)k, (float)(i * 2000 + k), 0};
    }
}

static void add_mask(struct fixture *f, uint32_t i) {
    struct token_mask *mask = &f->samplings[i].mask;
    mask->num_words = f->mask_words;
    mask->always = malloc(f->mask_words * sizeof *mask->always);
    assert_non_null(mask->always);
    for (uint32_t k = 0; k < f->mask_words; k++) mask->always[k] = i << 24 | k;
}

// All but the last token of these prompts, which is sampled.
static void add_prompt_rows(struct fixture *f, uint32_t i) {
    f->items[i].num_prompt_rows = f->items[i].num_tokens - 1;
    f->samplings[i].params.prompt_logprobs = (int32_t)i;
}

// Of sequence i: each of its rows is greedy and biased to the token that follows.
static void check_prompt_rows(const struct fixture *f, const struct step *step, uint32_t i) {
    uint32_t first_row = 0, first_token = 0;
    for (uint32_t k = 0; k < i; k++) {
        first_row += f->items[k].num_prompt_rows;
        first_token += f->items[k].num_tokens;
    }
    for (uint32_t k = 0; k < f->items[i].num_prompt_rows; k++) {
        const struct sample_row *row = &step->prompt_rows[first_row + k];
        assert_int_equal(step->prompt_index[first_row + k], first_token + k);
        assert_true(row->temperature == 0 && row->top_p == 1 && row->repetition_penalty == 1);
        assert_int_equal(row->num_top, i);
        assert_int_equal(row->counts_slot + row->mask, 0);
        assert_int_equal(row->bias_count, 1);
        const struct sample_bias bias = step->biases[row->bias_start];
        assert_int_equal(bias.token_id, f->seqs[i]->token_ids[k + 1]);
        assert_true(bias.bias > 1e20f && bias.bias < 1e35f);
    }
}

// Each token of sequence i has its slot in each group's block.
static void check_slots(const struct fixture *f, const struct step *step, uint32_t i, uint32_t g) {
    const int32_t *slots = step_slots(step, g) + step->query_start[i];
    for (uint32_t k = 0; k < f->items[i].num_tokens; k++) {
        uint32_t block = sequence_table(f->seqs[i], g)[k / BLOCK_SIZE];
        assert_int_equal(slots[k], block * BLOCK_SIZE + k % BLOCK_SIZE);
    }
}

static void update_tables(const struct backend *backend, const struct batch_header *header,
                          void *copy, int32_t *tables) {
    const struct update_tables_args args = batch_table_update(header, copy, tables);
    backend->ops->update_tables((struct backend *)(uintptr_t)backend, &args);
}

// What the rows of a copy of the batch find.
static void check(struct fixture *f, uint32_t num_rows) {
    uint32_t bytes = f->batch.header->size_bytes;
    void *copy = malloc(bytes);
    assert_non_null(copy);
    memcpy(copy, f->batch.header, bytes);
    const struct step step = batch_bind(f->batch.header, copy);
    assert_int_equal(step.num_logits, num_rows);
    update_tables(f->backend, f->batch.header, copy, f->tables);
    for (uint32_t i = 0; i < NUM_SEQS; i++) {
        const struct sampling *sampling = &f->samplings[i];
        const struct sample_row *row = &step.rows[i];
        uint32_t num_blocks = (f->items[i].num_tokens + BLOCK_SIZE - 1) / BLOCK_SIZE;
        assert_int_equal(row->counts_slot, 10 * (i + 1));
        assert_int_equal(row->bias_count, sampling->row.bias_count);
        assert_int_equal(row->mask != 0, sampling->mask.always != NULL);
        if (row->bias_count) {
            assert_memory_equal(step.biases + row->bias_start, sampling->biases,
                                (row->bias_count + row->num_given) * sizeof *sampling->biases);
        }
        if (row->mask) {
            assert_memory_equal(step.masks + (size_t)(row->mask - 1) * f->mask_words,
                                sampling->mask.always, f->mask_words * sizeof(uint32_t));
        }
        check_prompt_rows(f, &step, i);
        assert_int_equal(step.table_row[i], f->seqs[i]->table_row);
        for (uint32_t g = 0; g < NUM_KV_GROUPS; g++) {
            uint32_t at = g * f->limits.max_num_seqs + f->seqs[i]->table_row;
            assert_memory_equal(f->tables + at * BLOCKS_MAX, sequence_table(f->seqs[i], g),
                                num_blocks * sizeof *f->tables);
            check_slots(f, &step, i, g);
        }
    }
    for (uint32_t i = NUM_SEQS; i < num_rows; i++) { // padding
        for (uint32_t g = 0; g < NUM_KV_GROUPS; g++) {
            assert_int_equal(step_slots(&step, g)[step.query_start[i]], -1);
        }
        assert_int_equal(step.rows[i].counts_slot, 0);
        assert_int_equal(step.rows[i].bias_count, 0);
        assert_int_equal(step.rows[i].mask, 0);
    }
    free(copy);
}

static const uint32_t vocab_sizes[] = {1, 31, 32, 33, 1000, 151936};
static const uint32_t mixed_tokens[NUM_SEQS] = {1, 7, 12, 2, 5};

static void test_rows_find_what_is_theirs(void **state) {
    (void)state;
    for (size_t v = 0; v < ARRAY_LEN(vocab_sizes); v++) {
        for (uint32_t which = 0; which < 1u << NUM_SEQS; which++) { // who has biases; others masks
            struct fixture f;
            init(&f, vocab_sizes[v], mixed_tokens);
            for (uint32_t i = 0; i < NUM_SEQS; i++) {
                bool has_biases = which >> i & 1;
                if (has_biases) add_biases(&f.samplings[i], 1 + 3 * i, i);
                if (!has_biases || i == 2) add_mask(&f, i);
                if (which % 3 == i % 3) add_prompt_rows(&f, i);
            }
            batch_build(&f.batch, &f.schedule, BLOCK_SIZE, row_of, 0);
            check(&f, NUM_SEQS);
            fini(&f);
        }
    }
}

static void test_nothing_to_find(void **state) {
    (void)state;
    struct fixture f;
    init(&f, 1000, mixed_tokens);
    batch_build(&f.batch, &f.schedule, BLOCK_SIZE, row_of, 0);
    check(&f, NUM_SEQS);
    assert_int_equal(f.batch.header->num_biases + f.batch.header->num_masks, 0);
    fini(&f);
}

static void test_pooled_rows_are_the_last_of_an_item(void **state) {
    (void)state;
    struct fixture f;
    init(&f, 1000, mixed_tokens);
    uint32_t first_token = 0, row = 0;
    for (uint32_t i = 0; i < NUM_SEQS; i++)
        f.items[i].num_pooled = i % 2 ? f.items[i].num_tokens : 1;
    batch_build(&f.batch, &f.schedule, BLOCK_SIZE, row_of, 0);
    const struct step step = batch_bind(f.batch.header, f.batch.header);
    for (uint32_t i = 0; i < NUM_SEQS; i++) {
        uint32_t count = f.items[i].num_tokens;
        for (uint32_t k = i % 2 ? 0 : count - 1; k < count; k++) {
            assert_int_equal(step.pool_index[row++], first_token + k);
        }
        first_token += count;
    }
    assert_int_equal(step.num_pooled, row);
    check(&f, NUM_SEQS);
    fini(&f);
}

// Sequences of several tokens and their lengths. Drafts behind a token are not a prompt where they
// are sequences of their own.
static void test_prompts_are_counted(void **state) {
    (void)state;
    static const uint32_t num_tokens[NUM_SEQS] = {1, 5, 2, 3, 12};
    for (int splits = 0; splits < 2; splits++) {
        struct fixture f;
        init(&f, 1000, num_tokens);
        f.batch.splits_drafts = splits;
        for (uint32_t i = 0; i < NUM_SEQS; i++) f.items[i].needs_token = false;
        f.items[3].num_drafts = f.schedule.num_draft_tokens = 2;
        f.seqs[1]->num_computed_tokens = 7; // a prompt's second part
        batch_build(&f.batch, &f.schedule, BLOCK_SIZE, row_of, 0);
        const struct step step = batch_bind(f.batch.header, f.batch.header);
        assert_int_equal(step.num_prompts, splits ? 3 : 4);
        assert_int_equal(step.prompt_positions, splits ? 12 + 2 + 12 : 12 + 2 + 3 + 12);
        fini(&f);
    }
}

// Each prompt is far behind its first token: together they have more positions than 32 bits count.
static void test_the_sum_of_positions_stays_at_its_bound(void **state) {
    (void)state;
    static const uint32_t num_tokens[NUM_SEQS] = {2, 2, 2, 2, 2};
    const uint32_t start = 0x38000000, block_size = 0x40000000; // so all is in the first block
    const size_t bytes = ((size_t)start + 2) * sizeof(int32_t);
    // Zeroes without memory.
    int32_t *ids = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(ids, MAP_FAILED);
    struct fixture f;
    init(&f, 1000, num_tokens);
    int32_t *own_ids[NUM_SEQS];
    for (uint32_t i = 0; i < NUM_SEQS; i++) {
        own_ids[i] = f.seqs[i]->token_ids;
        f.seqs[i]->token_ids = ids;
        f.seqs[i]->num_computed_tokens = start;
        f.seqs[i]->num_sent = 1;
        f.items[i].needs_token = false;
    }
    f.schedule.num_items = 4;
    batch_build(&f.batch, &f.schedule, block_size, row_of, 0);
    assert_int_equal(f.batch.header->prompt_positions, 4 * (start + 2));
    f.schedule.num_items = 5;
    batch_build(&f.batch, &f.schedule, block_size, row_of, 0);
    assert_int_equal(f.batch.header->prompt_positions, UINT32_MAX);
    for (uint32_t i = 0; i < NUM_SEQS; i++) f.seqs[i]->token_ids = own_ids[i];
    fini(&f);
    munmap(ids, bytes);
}

static void test_the_largest_step_fits(void **state) {
    (void)state;
    static const uint32_t all_tokens[NUM_SEQS] = {12, 12, 12, 12, 12};
    for (size_t v = 0; v < ARRAY_LEN(vocab_sizes); v++) {
        struct fixture f;
        init(&f, vocab_sizes[v], all_tokens);
        for (uint32_t i = 0; i < NUM_SEQS; i++) {
            add_biases(&f.samplings[i], PARAMS_MAX_logit_bias + PARAMS_MAX_logprob_token_ids, i);
            f.samplings[i].row.bias_count = PARAMS_MAX_logit_bias;
            f.samplings[i].row.num_given = PARAMS_MAX_logprob_token_ids;
            add_mask(&f, i);
            add_prompt_rows(&f, i);
            f.items[i].num_pooled = f.items[i].num_tokens;
        }
        batch_build(&f.batch, &f.schedule, BLOCK_SIZE, row_of, 0);
        check(&f, NUM_SEQS);
        // Each sequence's last token is no row of its prompt, and no row is behind a draft; a mask
        // begins at a multiple of its size. No prefix is shared.
        size_t missing =
            NUM_SEQS * (sizeof(struct sample_row) + sizeof(int32_t) +
                        DRAFT_TOKENS_MAX * sizeof(struct sample_bias) + 2 * sizeof(int32_t));
        size_t slack = NUM_SEQS * sizeof(struct sample_bias) + f.mask_words * sizeof(uint32_t);
        assert_true(f.batch.header->size_bytes <= f.batch.capacity_bytes);
        size_t most = f.batch.header->size_bytes + missing + slack;
        assert_true(most >= f.batch.capacity_bytes);
        // But for where masks begin that is all.
        assert_true(most - 2 * f.mask_words * sizeof(uint32_t) <= f.batch.capacity_bytes);
        fini(&f);
    }
}

// A recorded step finds rows and tail at the same places, whatever the tail has.
static void test_padded_rows_keep_their_places(void **state) {
    (void)state;
    static const uint32_t one_token[NUM_SEQS] = {1, 1, 1, 1, 1};
    struct fixture f;
    init(&f, 1000, one_token);
    f.limits.max_num_seqs = PADDED_SEQS;
    batch_fini(&f.batch, f.backend);
    assert_int_equal(batch_init(&f.batch, f.backend, &f.limits, f.vocab_size, NULL, NULL), OK);
    batch_build(&f.batch, &f.schedule, BLOCK_SIZE, row_of, 8);
    check(&f, 8);
    const struct step bare = batch_bind(f.batch.header, f.batch.header);
    add_biases(&f.samplings[3], 5, 3);
    add_mask(&f, 1);
    batch_build(&f.batch, &f.schedule, BLOCK_SIZE, row_of, 8);
    check(&f, 8);
    const struct step full = batch_bind(f.batch.header, f.batch.header);
    assert_ptr_equal(full.rows, bare.rows);
    assert_ptr_equal(full.table_row, bare.table_row);
    assert_ptr_equal(full.biases, bare.biases);
    assert_ptr_equal(full.masks, bare.masks);
    fini(&f);
}

// Two decodes, one of them with a long table.
struct decodes {
    struct backend *backend;
    struct batch batch;
    struct sampling sampling;
    struct sequence *seqs[2];
    struct scheduled items[2];
    struct schedule schedule;
    int32_t *tables;
    uint32_t num_blocks; // of the long table
};

static uint32_t long_row_of(const struct decodes *d) {
    return d->seqs[1]->table_row * (d->num_blocks + 1);
}

static void decodes_init(struct decodes *d, uint32_t num_blocks) {
    const struct backend_options options = {
        .device = "cpu", .cpu_isa = "auto", .threads = 1, .weight_dtype = DTYPE_BF16};
    const struct step_limits limits = {.max_num_tokens = 2,
                                       .max_num_seqs = 2,
                                       .max_positions = (num_blocks + 1) * BLOCK_SIZE,
                                       .max_blocks_per_seq = num_blocks + 1,
                                       .num_kv_groups = 1};
    *d = (struct decodes){.num_blocks = num_blocks};
    assert_int_equal(backend_create(&d->backend, &options, NULL), OK);
    assert_int_equal(batch_init(&d->batch, d->backend, &limits, 100, NULL, NULL), OK);
    d->tables = calloc(2 * (num_blocks + 1), sizeof *d->tables);
    const uint32_t num_tokens[] = {2, num_blocks * BLOCK_SIZE};
    int32_t *prompt = calloc(num_tokens[1], sizeof *prompt);
    assert_true(d->tables && prompt);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(sequence_create(&d->seqs[i], i + 1, prompt, num_tokens[i], BLOCK_SIZE,
                                         BLOCK_SIZE, 1, NULL),
                         OK);
        d->seqs[i]->user = &d->sampling;
        d->seqs[i]->table_row = i;
        d->seqs[i]->num_computed_tokens = num_tokens[i] - 1;
        d->items[i] = (struct scheduled){.seq = d->seqs[i], .num_tokens = 1, .needs_token = true};
    }
    for (uint32_t b = 0; b <= num_blocks; b++) d->seqs[1]->block_table[b] = 7 * b;
    d->schedule = (struct schedule){.items = d->items, .num_items = 2, .num_decode_tokens = 2};
    free(prompt);
}

static void decodes_fini(struct decodes *d) {
    for (uint32_t i = 0; i < 2; i++) sequence_destroy(d->seqs[i]);
    batch_fini(&d->batch, d->backend);
    backend_destroy(d->backend);
    free(d->tables);
}

// The bytes of a step, whose tables are then right.
static size_t decodes_step(struct decodes *d) {
    batch_build(&d->batch, &d->schedule, BLOCK_SIZE, row_of, 2);
    update_tables(d->backend, d->batch.header, d->batch.header, d->tables);
    uint32_t num_blocks = (d->seqs[1]->num_computed_tokens + BLOCK_SIZE) / BLOCK_SIZE;
    assert_memory_equal(d->tables + long_row_of(d), d->seqs[1]->block_table,
                        num_blocks * sizeof *d->tables);
    return batch_launch_bytes(d->batch.header);
}

static void test_a_step_has_only_what_changed_in_tables(void **state) {
    (void)state;
    size_t steady_bytes[2];
    for (uint32_t i = 0; i < 2; i++) {
        struct decodes d;
        decodes_init(&d, 1000u << 3 * i);
        size_t first = decodes_step(&d), steady = steady_bytes[i] = decodes_step(&d);
        size_t entry = sizeof(int32_t), run = sizeof(struct table_run);
        assert_int_equal(first - steady, 2 * run + (1 + d.num_blocks) * entry);
        d.seqs[1]->num_computed_tokens++; // begins a block
        assert_int_equal(decodes_step(&d) - steady, run + entry);
        assert_int_equal(decodes_step(&d), steady);
        // Its content was in the cache already: the sequence shares that block.
        d.seqs[1]->block_table[d.num_blocks - 2] = 5;
        d.seqs[1]->num_sent = d.num_blocks - 2;
        assert_int_equal(decodes_step(&d) - steady, run + 3 * entry);
        // Preempted and admitted again, in another row.
        for (uint32_t b = 0; b <= d.num_blocks; b++) d.seqs[1]->block_table[b] = 3 * b + 1;
        d.seqs[1]->num_sent = 0;
        d.seqs[1]->table_row = 0;
        d.seqs[0]->table_row = 1;
        d.seqs[0]->num_sent = 0;
        assert_int_equal(decodes_step(&d) - steady, 2 * run + (2 + d.num_blocks) * entry);
        decodes_fini(&d);
    }
    assert_int_equal(steady_bytes[0], steady_bytes[1]);
}

// Decodes of five sequences share two blocks, whose third the step writes. Sequence 2 has others,
// and sequence `odd` has a prompt's chunk, or one draft, which makes it two rows.
static void check_shared(uint32_t odd, uint32_t odd_tokens, uint32_t num_drafts) {
    static const uint32_t num_tokens[NUM_SEQS] = {12, 12, 12, 12, 12};
    bool is_prompt = odd_tokens > 1 + num_drafts;
    uint32_t padded = is_prompt ? 0 : PADDED_SEQS, num_shared = 0, seqs[NUM_SEQS + 1];
    struct fixture f;
    init(&f, 1000, num_tokens);
    f.limits.max_num_seqs = PADDED_SEQS;
    batch_fini(&f.batch, f.backend);
    assert_int_equal(batch_init(&f.batch, f.backend, &f.limits, f.vocab_size, NULL, NULL), OK);
    f.batch.splits_drafts = true;
    f.batch.finder.limits = (struct shared_prefix_limits){2, 2 * BLOCK_SIZE, 1};
    for (uint32_t i = 0, seq = 0; i < NUM_SEQS; i++) {
        uint32_t drafts = i == odd ? num_drafts : 0;
        f.items[i].num_tokens = i == odd ? odd_tokens : 1;
        f.items[i].num_drafts = drafts;
        f.seqs[i]->num_computed_tokens = 12 - f.items[i].num_tokens;
        for (uint32_t k = 0; k <= drafts; k++, seq++) {
            if (i != 2 && !(i == odd && is_prompt)) seqs[num_shared++] = seq;
        }
        if (i == 2) continue;
        memcpy(sequence_table(f.seqs[i], 0), sequence_table(f.seqs[0], 0),
               BLOCKS_MAX * sizeof(uint32_t));
    }
    uint32_t masked = odd < 1 ? 1 + num_drafts : 1;
    add_mask(&f, 1); // behind the prefixes in the batch
    batch_build(&f.batch, &f.schedule, BLOCK_SIZE, row_of, padded);
    struct step step = batch_bind(f.batch.header, f.batch.header);
    assert_int_equal(step.shared.num, 0); // nobody asked
    f.batch.shares_prefixes = true;
    batch_build(&f.batch, &f.schedule, BLOCK_SIZE, row_of, padded);
    step = batch_bind(f.batch.header, f.batch.header);
    assert_int_equal(step.shared.num, 1);
    assert_int_equal(step.shared.list[0].first, 0);
    assert_int_equal(step.shared.list[0].num_seqs, num_shared);
    assert_int_equal(step.shared.list[0].num_positions, 2 * BLOCK_SIZE);
    assert_memory_equal(step.shared.seqs, seqs, num_shared * sizeof *seqs);
    for (uint32_t seq = 0, i = 0; seq < step.num_seqs; seq++) {
        bool shares = i < num_shared && seqs[i] == seq;
        assert_int_equal(step.shared.prefix_of[seq], shares ? 0 : -1);
        i += shares;
    }
    for (uint32_t k = 0; k < f.mask_words; k++) {
        uint32_t at = (step.rows[masked].mask - 1) * f.mask_words + k;
        assert_int_equal(step.masks[at], 1u << 24 | k);
    }
    fini(&f);
}

static void test_shared_prefixes(void **state) {
    (void)state;
    check_shared(4, 1, 0);
    check_shared(4, 3, 0);
    check_shared(0, 3, 0);
    check_shared(4, 2, 1);
    check_shared(0, 2, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows_find_what_is_theirs),
        cmocka_unit_test(test_nothing_to_find),
        cmocka_unit_test(test_pooled_rows_are_the_last_of_an_item),
        cmocka_unit_test(test_prompts_are_counted),
        cmocka_unit_test(test_the_sum_of_positions_stays_at_its_bound),
        cmocka_unit_test(test_the_largest_step_fits),
        cmocka_unit_test(test_padded_rows_keep_their_places),
        cmocka_unit_test(test_shared_prefixes),
        cmocka_unit_test(test_a_step_has_only_what_changed_in_tables),
    };
    return cmocka_run_group_tests_name("batch", tests, NULL, NULL);
}
