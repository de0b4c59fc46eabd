// Flags made from parameter tables: every spelling, every fault, and help that lists every row.
#include "cmd/options/options.h"

#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "support/cmocka_all.h"

struct own {
    const char *model, *mode;
    int32_t count, threads, verbose, enable_cache;
    double scale;
};

static const struct nvllm_param *own_row(size_t index) {
    static const struct nvllm_param rows[] = {
        {"model", NVLLM_PARAM_STRING, offsetof(struct own, model), 0, 0, NULL, "a folder"},
        {"run_mode", NVLLM_PARAM_STRING, offsetof(struct own, mode), 0, 0, "fast|slow", "how"},
        {"batch_count", NVLLM_PARAM_INT, offsetof(struct own, count), 1, 100, NULL, "how many"},
        {"verbose", NVLLM_PARAM_BOOL, offsetof(struct own, verbose), 0, 1, NULL, "say more"},
        {"enable_cache", NVLLM_PARAM_BOOL, offsetof(struct own, enable_cache), 0, 1, NULL,
         "use it"},
        {"prompt", NVLLM_PARAM_STRINGS, 0, 0, 0, NULL, "an argument"},
        {"threads", NVLLM_PARAM_INT, offsetof(struct own, threads), 0, 8, NULL, "of the CPU"},
        {"scale", NVLLM_PARAM_DOUBLE, offsetof(struct own, scale), 0, 1, NULL, "a part"},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

// A table with a setter, which gets names and JSON text.
static const struct nvllm_param *list_row(size_t index) {
    static const struct nvllm_param rows[] = {
        {"stop", NVLLM_PARAM_STRINGS, 0, 0, 0, NULL, "strings"},
        {"stop_token_ids", NVLLM_PARAM_IDS, 0, 0, 0, NULL, "ids"},
        {"logit_bias", NVLLM_PARAM_BIASES, 0, 0, 0, NULL, "biases"},
        {"temperature", NVLLM_PARAM_FLOAT, 0, 0, 2, NULL, "a number"},
        {"seed", NVLLM_PARAM_INT64, 0, 0, 2, NULL, "hidden"},
    };
    return index < ARRAY_LEN(rows) ? &rows[index] : NULL;
}

struct calls {
    char text[512];
};

static enum status record(void *target, const char *name, const char *value, struct err *err) {
    struct calls *calls = target;
    if (strcmp(value, "bad") == 0) return err_set(err, ERR_INVALID, "%s is bad", name);
    size_t len = strlen(calls->text);
    snprintf(calls->text + len, sizeof calls->text - len, "%s=%s;", name, value);
    return OK;
}

struct parsed {
    struct own own;
    struct calls calls;
    struct option_group groups[2];
    struct options options;
    struct err err;
    enum status status;
    char *argv[16];
    int argc;
};

// Splits at blanks; '_' in a word stands for a blank only where a test says so itself.
static struct parsed *parse(const char *line) {
    static struct parsed p;
    static char copy[512];
    p = (struct parsed){0};
    p.groups[0] = (struct option_group){.title = "Own", .row = own_row, .target = &p.own};
    p.groups[1] = (struct option_group){
        .title = "Lists", .row = list_row, .set = record, .target = &p.calls, .hidden = "seed"};
    p.options = (struct options){
        .command = "test", .synopsis = "[options]", .groups = p.groups, .num_groups = 2};
    snprintf(copy, sizeof copy, "%s", line);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) p.argv[p.argc++] = word;
    p.status = options_parse(&p.options, p.argc, p.argv, &p.err);
    return &p;
}

static void refused(const char *line, const char *sentence) {
    struct parsed *p = parse(line);
    assert_int_equal(p->status, ERR_INVALID);
    assert_string_equal(p->err.message, sentence);
}

static void test_values_in_both_spellings(void **state) {
    (void)state;
    struct parsed *p = parse("--model dir --batch-count=7 --scale 0.5 --run-mode slow");
    assert_int_equal(p->status, OK);
    assert_string_equal(p->own.model, "dir");
    assert_int_equal(p->own.count, 7);
    assert_true(p->own.scale == 0.5);
    assert_string_equal(p->own.mode, "slow");
    assert_int_equal(p->options.num_args, 0);
    assert_string_equal(parse("-m dir")->own.model, "dir");
    assert_int_equal(parse("--batch_count 3")->own.count, 3);
    assert_string_equal(parse("--model=a=b")->own.model, "a=b");
    assert_string_equal(parse("--model=")->own.model, "");
    assert_int_equal(parse("--batch-count 3 --batch-count 4")->own.count, 4);
}

static void test_booleans(void **state) {
    (void)state;
    assert_int_equal(parse("--verbose")->own.verbose, 1);
    assert_int_equal(parse("--verbose --no-verbose")->own.verbose, 0);
    assert_int_equal(parse("--verbose=false")->own.verbose, 0);
    assert_int_equal(parse("--enable-cache")->own.enable_cache, 1);
    assert_int_equal(parse("--enable-cache --disable-cache")->own.enable_cache, 0);
    assert_int_equal(parse("--enable-cache --no-enable-cache")->own.enable_cache, 0);
    struct parsed *p = parse("--verbose yes"); // a boolean takes no next argument
    assert_int_equal(p->options.num_args, 1);
    refused("--no-verbose=true", "--no-verbose: it takes no value");
    refused("--verbose=1", "--verbose: it takes no value");
}

static void test_arguments_keep_their_order(void **state) {
    (void)state;
    struct parsed *p = parse("one --verbose two - -- --model -x");
    assert_int_equal(p->status, OK);
    const char *const want[] = {"one", "two", "-", "--model", "-x"};
    assert_int_equal(p->options.num_args, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) assert_string_equal(p->options.args[i], want[i]);
}

static void test_short_flags(void **state) {
    (void)state;
    struct parsed *p = parse("-t 4 -m dir");
    assert_int_equal(p->status, OK);
    assert_int_equal(p->own.threads, 4);
    assert_string_equal(p->own.model, "dir");
    refused("-t", "-t needs a value");
    refused("-t 9", "-t: \"9\" is not an integer from 0 to 8");
    refused("-t4", "unknown option -t4");
    refused("-n 3", "unknown option -n"); // no row of these tables has it
    assert_int_equal(option_letter(own_row(1)), 0);
}

static void test_a_flag_may_give_an_argument(void **state) {
    (void)state;
    struct parsed *p = parse("one -p two --prompt=three --verbose --prompt --model four");
    assert_int_equal(p->status, OK);
    const char *const want[] = {"one", "two", "three", "--model", "four"};
    assert_int_equal(p->options.num_args, ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) assert_string_equal(p->options.args[i], want[i]);
}

static void test_faults(void **state) {
    (void)state;
    refused("--modle x", "unknown option --modle; did you mean --model?");
    refused("--disable-cahce", "unknown option --disable-cahce; did you mean --disable-cache?");
    refused("--zzzzzzzzzzzz", "unknown option --zzzzzzzzzzzz");
    refused("--seed 1", "unknown option --seed");
    refused("-x", "unknown option -x");
    refused("--model", "--model needs a value");
    refused("--batch-count x", "--batch-count: \"x\" is not an integer from 1 to 100");
    refused("--batch-count 101", "--batch-count: \"101\" is not an integer from 1 to 100");
    refused("--batch-count 1x", "--batch-count: \"1x\" is not an integer from 1 to 100");
    refused("--scale nan", "--scale: \"nan\" is not a number from 0 to 1");
    refused("--run-mode fas", "--run-mode: \"fas\" is not one of fast|slow");
    // The setter's error, with the flag as typed.
    refused("--temperature bad", "--temperature is bad");
}

static void test_a_negative_number_is_a_value(void **state) {
    (void)state;
    assert_string_equal(parse("--temperature -1")->calls.text, "temperature=-1;");
}

static void test_lists_are_collected(void **state) {
    (void)state;
    assert_string_equal(parse("--stop a --stop [b")->calls.text, "stop=[\"a\",\"[b\"];");
    assert_string_equal(parse("--stop \"x\"")->calls.text, "stop=[\"\\\"x\\\"\"];");
    assert_string_equal(parse("--stop-token-ids 1,2 --stop-token-ids [3]")->calls.text,
                        "stop_token_ids=[1,2,3];");
    assert_string_equal(parse("--logit-bias 5=-1.5,6=-inf --logit-bias {\"7\":2}")->calls.text,
                        "logit_bias={\"5\":-1.5,\"6\":\"-inf\",\"7\":2};");
    refused("--stop-token-ids 1,x",
            "--stop-token-ids: \"1,x\" is not a list of token ids like 1,2,3");
    refused("--logit-bias 1:2", "--logit-bias: \"1:2\" is not a list of biases like 17=-100,4=2.5");
    refused("--logit-bias 1=2,3=4,1=5", "--logit-bias: token 1 is given twice");
    refused("--logit-bias 1=inf",
            "--logit-bias: \"1=inf\" is not a list of biases like 17=-100,4=2.5");
    assert_int_equal(parse("--stop-token-ids [1")->status, ERR_INVALID);
    assert_int_equal(parse("--stop-token-ids {}")->status, ERR_INVALID);
    assert_int_equal(parse("--stop \xff")->status, ERR_INVALID);
}

// The output of --help in the requested form; the caller's.
static char *printed(const struct parsed *p) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    options_print(&p->options, out);
    fclose(out);
    return text;
}

static void test_help_wins_and_lists_every_row(void **state) {
    (void)state;
    struct parsed *p = parse("--nonsense --help");
    assert_int_equal(p->status, OK);
    assert_true(p->options.help);
    assert_false(parse("-- --help")->options.help);
    p = parse("-h");
    assert_true(p->options.help);
    char *text = printed(p);
    const char *const want[] = {"Usage: nanovllm test [options]\n",
                                "\nOwn:\n  -m, --model MODEL             a folder\n",
                                "--run-mode NAME               how {fast|slow}\n",
                                "--batch-count N               how many [1 to 100]\n",
                                "--[no-]verbose                say more\n",
                                "--[enable|disable]-cache      use it\n",
                                "\n  -t, --threads N               of the CPU [0 to 8]\n",
                                "\n  -p, --prompt TEXT             an argument\n",
                                "--scale X                     a part [0 to 1]\n",
                                "\nLists:\n  --stop TEXT                   strings\n",
                                "--stop-token-ids ID,...",
                                "--logit-bias ID=X,..."};
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        if (!strstr(text, want[i])) fail_msg("the help lacks \"%s\":\n%s", want[i], text);
    }
    assert_null(strstr(text, "hidden"));
    free(text);
}

static void prints(const char *line, enum options_form form, const char *const *want,
                   size_t count) {
    struct parsed *p = parse(line);
    assert_true(p->options.help);
    assert_int_equal(p->options.form, form);
    char *text = printed(p);
    for (size_t i = 0; i < count; i++) {
        if (!strstr(text, want[i])) fail_msg("%s lacks \"%s\":\n%s", line, want[i], text);
    }
    assert_null(strstr(text, "hidden"));
    free(text);
}

static void test_forms_of_the_help(void **state) {
    (void)state;
    const char *const man[] = {
        ".SH SYNOPSIS\n\\fBnanovllm test\\fR [options]\n",
        ".SS Own\n.TP\n\\fB\\-m\\fR, \\fB\\-\\-model\\fR \\fIMODEL\\fR\na folder\n",
        ".TP\n\\fB\\-\\-verbose\\fR, \\fB\\-\\-no\\-verbose\\fR\nsay more\n",
        "\\fIN\\fR\nhow many [1 to 100]\n"};
    prints("--help=man", OPTIONS_MAN, man, ARRAY_LEN(man));
    const char *const bash[] = {
        "_nanovllm_test() {\n    flags='--help --model --run-mode ",
        " --enable-cache --disable-cache --prompt ", "    -m | --model) value=files ;;\n",
        "    --run-mode) value=words words='fast slow' ;;\n", "    --batch-count) value=any ;;\n"};
    prints("--help=bash", OPTIONS_BASH, bash, ARRAY_LEN(bash));
    const char *const zsh[] = {"'(-m --model)'{-m,--model=}'[a folder]:MODEL:_files' \\\n",
                               "'--run-mode=[how]:NAME:(fast slow)' \\\n",
                               "'--verbose[say more]' \\\n", "'*--stop=[strings]:TEXT:' \\\n"};
    prints("--help=zsh", OPTIONS_ZSH, zsh, ARRAY_LEN(zsh));
    const char *const fish[] = {" -s m -l model -r -F -d 'a folder'\n",
                                " -l run-mode -x -a 'fast slow' -d 'how'\n",
                                " -l no-verbose -d 'say more'\n"};
    prints("--help=fish", OPTIONS_FISH, fish, ARRAY_LEN(fish));
}

static void test_roff_is_escaped(void **state) {
    (void)state;
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    roff_paragraphs(out, ".first\n'b\\c' a-b\n\nx  1\ny  2\n\nlast\n");
    fclose(out);
    assert_string_equal(text, "\\&.first\n\\&\\(aqb\\ec\\(aq a\\-b\n"
                              ".PP\n.nf\nx  1\ny  2\n.fi\n.PP\nlast\n");
    free(text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values_in_both_spellings),
        cmocka_unit_test(test_booleans),
        cmocka_unit_test(test_arguments_keep_their_order),
        cmocka_unit_test(test_short_flags),
        cmocka_unit_test(test_a_flag_may_give_an_argument),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_a_negative_number_is_a_value),
        cmocka_unit_test(test_lists_are_collected),
        cmocka_unit_test(test_help_wins_and_lists_every_row),
        cmocka_unit_test(test_forms_of_the_help),
        cmocka_unit_test(test_roff_is_escaped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
