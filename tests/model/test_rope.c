/* Rotary frequencies of each scaling against values computed from the papers' formulas. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "model/rope.h"

static void near(double got, double want) {
    if (fabs(got - want) > 1e-6 * fabs(want)) fail_msg("%.9g, want %.9g", got, want);
}

static void test_default_frequencies_are_powers_of_theta(void **state) {
    (void)state;
    const struct rope_config rope = {.type = ROPE_DEFAULT, .theta = 10000};
    float inv_freq[4];
    near((double)rope_frequencies(&rope, 8, 4096, inv_freq), 1);
    const double want[] = {1, 0.1, 0.01, 0.001};
    for (int i = 0; i < 4; i++) near((double)inv_freq[i], want[i]);
}

static void test_linear_divides_by_factor(void **state) {
    (void)state;
    const struct rope_config rope = {.type = ROPE_LINEAR, .theta = 10000, .factor = 4};
    float inv_freq[4];
    rope_frequencies(&rope, 8, 4096, inv_freq);
    near((double)inv_freq[0], 0.25);
    near((double)inv_freq[3], 0.00025);
}

static void test_llama3_keeps_short_and_stretches_long_wavelengths(void **state) {
    (void)state;
    const struct rope_config rope = {.type = ROPE_LLAMA3,
                                     .theta = 500000,
                                     .factor = 8,
                                     .original_max_position_embeddings = 8192,
                                     .low_freq_factor = 1,
                                     .high_freq_factor = 4};
    float inv_freq[64];
    rope_frequencies(&rope, 128, 4096, inv_freq);
    near((double)inv_freq[0], 1); // wavelength 6.28: short
    near((double)inv_freq[63], pow(500000, -126.0 / 128) / 8); // wavelength 2.6 M: long
    double frequency = pow(500000, -64.0 / 128); // wavelength 4443: between
    double smooth = (8192 / (2 * M_PI / frequency) - 1) / 3;
    near((double)inv_freq[32], (1 - smooth) * frequency / 8 + smooth * frequency);
}

static void test_yarn_interpolates_only_slow_dimensions(void **state) {
    (void)state;
    const struct rope_config rope = {.type = ROPE_YARN,
                                     .theta = 1000000,
                                     .factor = 4,
                                     .original_max_position_embeddings = 32768,
                                     .beta_fast = 32,
                                     .beta_slow = 1,
                                     .truncate = true};
    float inv_freq[64];
    float scale = rope_frequencies(&rope, 128, 4096, inv_freq);
    near((double)scale, 0.1 * log(4) + 1);
    near((double)inv_freq[0], 1);
    near((double)inv_freq[63], pow(1000000, -126.0 / 128) / 4);
}

// The ramp's ends are clamped to the dimensions: at a small theta the formula goes beyond them.
static void test_yarn_ramp_is_cut_at_the_first_and_last_dimension(void **state) {
    (void)state;
    // Ends at 8 log(4096 / (rotations * 2 pi)) / (2 log 10): 11.3 for 1 rotation, 2.06 for 200.
    struct rope_config rope = {.type = ROPE_YARN,
                               .theta = 10,
                               .factor = 4,
                               .original_max_position_embeddings = 4096,
                               .beta_fast = 200,
                               .beta_slow = 1,
                               .truncate = true};
    float inv_freq[4];
    rope_frequencies(&rope, 8, 4096, inv_freq);
    near((double)inv_freq[2], pow(10, -0.5));
    double interpolated = (3.0 - 2) / (7 - 2); // from 2 to 7, not to 12
    near((double)inv_freq[3], pow(10, -0.75) * (interpolated / 4 + (1 - interpolated)));

    rope.beta_fast = 2000; // -1.94
    rope.beta_slow = 100; // 3.26
    rope_frequencies(&rope, 8, 4096, inv_freq);
    near((double)inv_freq[0], 1);
    near((double)inv_freq[1], pow(10, -0.25) * (0.25 / 4 + 0.75)); // from 0 to 4, not from -2
}

// The factor of the scores: given, or from the two mscales, or from `factor` alone.
static void test_yarn_scales_by_its_mscales(void **state) {
    (void)state;
    struct rope_config rope = {.type = ROPE_YARN,
                               .theta = 10000,
                               .factor = 40,
                               .original_max_position_embeddings = 4096,
                               .beta_fast = 32,
                               .beta_slow = 1,
                               .mscale = 0.7,
                               .mscale_all_dim = 0.4,
                               .truncate = true};
    float inv_freq[32];
    near((double)rope_frequencies(&rope, 64, 4096, inv_freq),
         (0.1 * 0.7 * log(40) + 1) / (0.1 * 0.4 * log(40) + 1));
    rope.mscale_all_dim = 0; // one alone counts for nothing
    near((double)rope_frequencies(&rope, 64, 4096, inv_freq), 0.1 * log(40) + 1);
    rope.mscale_all_dim = 0.4;
    rope.attention_factor = 1.25;
    near((double)rope_frequencies(&rope, 64, 4096, inv_freq), 1.25);
}

static void test_table_holds_cosines_then_sines(void **state) {
    (void)state;
    const struct rope_config rope = {.type = ROPE_DEFAULT, .theta = 10000};
    float table[3 * 4];
    rope_fill_table(&rope, 4, 4, 3, table);
    near((double)table[0], 1);
    assert_true(table[2] == 0.0f);
    near((double)table[8], cos(2));
    near((double)table[9], cos(0.02));
    near((double)table[10], sin(2));
    near((double)table[11], sin(0.02));
}

static void test_long(void **state) {
    (void)state;
    struct rope_config rope = {.type = ROPE_LONG,
                               .theta = 1e4,
                               .factor = 32,
                               .original_max_position_embeddings = 4096,
                               .num_factors = 2,
                               .short_factors = {1, 2},
                               .long_factors = {4, 8}};
    float inv_freq[2];
    double scale = sqrt(1 + log(32) / log(4096));
    near((double)rope_frequencies(&rope, 4, 4096, inv_freq), scale);
    near((double)inv_freq[0], 1);
    near((double)inv_freq[1], 0.01 / 2);
    near((double)rope_frequencies(&rope, 4, 4097, inv_freq), scale);
    near((double)inv_freq[0], 1.0 / 4);
    near((double)inv_freq[1], 0.01 / 8);
    rope.attention_factor = 1.25;
    near((double)rope_frequencies(&rope, 4, 4096, inv_freq), 1.25);
    rope.attention_factor = 0;
    rope.factor = 1;
    near((double)rope_frequencies(&rope, 4, 4096, inv_freq), 1);
}

static void test_table_of_a_part_of_each_head(void **state) {
    (void)state;
    const struct rope_config rope = {.theta = 1e4};
    float table[2 * 8];
    rope_fill_table(&rope, 8, 4, 2, table);
    const double want[8] = {cos(1), cos(0.01), 1, 1, sin(1), sin(0.01), 0, 0};
    for (int i = 0; i < 8; i++) near((double)table[8 + i], want[i]);
}

// Positions below the length keep their angles; then q grows with the logarithm of the turns.
static void test_table_of_scaled_queries(void **state) {
    (void)state;
    const struct rope_config rope = {.theta = 1e4, .query_beta = 0.5, .query_length = 2};
    float table[6 * 2], scaled[6 * 2];
    rope_fill_table(&rope, 2, 2, 6, table);
    rope_scale_table(&rope, 2, 6, table, scaled);
    const double scales[6] = {
        1, 1, 1 + 0.5 * log(2), 1 + 0.5 * log(2), 1 + 0.5 * log(3), 1 + 0.5 * log(3)};
    for (int i = 0; i < 12; i++) near((double)scaled[i], scales[i / 2] * (double)table[i]);
}

// The first pairs of a whole head turn as in a plain embedding, and the others do not.
static void test_proportional(void **state) {
    (void)state;
    const struct rope_config rope = {
        .type = ROPE_PROPORTIONAL, .theta = 1e4, .factor = 2, .proportion = 0.4};
    float inv_freq[8];
    near((double)rope_frequencies(&rope, 16, 4096, inv_freq), 1);
    for (int i = 0; i < 8; i++) near((double)inv_freq[i], i < 3 ? pow(1e4, -i / 8.0) / 2 : 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long),
        cmocka_unit_test(test_proportional),
        cmocka_unit_test(test_table_of_scaled_queries),
        cmocka_unit_test(test_table_of_a_part_of_each_head),
        cmocka_unit_test(test_default_frequencies_are_powers_of_theta),
        cmocka_unit_test(test_linear_divides_by_factor),
        cmocka_unit_test(test_llama3_keeps_short_and_stretches_long_wavelengths),
        cmocka_unit_test(test_yarn_interpolates_only_slow_dimensions),
        cmocka_unit_test(test_yarn_ramp_is_cut_at_the_first_and_last_dimension),
        cmocka_unit_test(test_yarn_scales_by_its_mscales),
        cmocka_unit_test(test_table_holds_cosines_then_sines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
