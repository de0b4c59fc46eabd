// The work on a request grows with its length, not with the square of it: lists and texts of every
// endpoint, and lines of generate's JSONL input. The processor time for a length is compared with
// that for eight times the length. It grows by 8 to about 14 where the work is linear, and by up to
// 64 where it is quadratic. And a request that was cancelled is let go of.
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "cmd/generate/prompt_source.h"
#include "server/api/chat_body.h"
#include "server/api/convert.h"
#include "server/api/endpoints.h"
#include "server/loop/api_request.h"
#include "server/loop/body.h"
#include "support/cmocka_all.h"

enum { GROWTH = 8, RATIO_MAX = 26, TRIES = 8 };

// A body: head, `count` items, tail. All have ' for ", and an item has # for its number.
struct load {
    const char *head, *item, *comma, *tail;
    uint32_t count;
};

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void add(struct buf *out, const char *text, uint32_t number) {
    for (; *text; text++) {
        char c = *text == '\'' ? '"' : *text;
        enum status status =
            c == '#' ? buf_appendf(out, NULL, "%u", number) : buf_append(out, &c, 1, NULL);
        assert_int_equal(status, OK);
    }
}

static struct buf make_text(const struct load *load, uint32_t count) {
    struct buf text = {0};
    add(&text, load->head, 0);
    for (uint32_t i = 0; i < count; i++) {
        if (i) add(&text, load->comma, 0);
        add(&text, load->item, i);
    }
    add(&text, load->tail, 0);
    return text;
}

static void ignore_end(struct api *api) {
    (void)api;
}

static int start(void **state) {
    static struct api api;
    static const char *const names[] = {"tiny"};
    static const struct server_options options = {.host = "127.0.0.1",
                                                  .model_names = names,
                                                  .num_model_names = 1,
                                                  .tool_call_parser = "auto",
                                                  .reasoning_parser = "auto",
                                                  .outputs_max = 1 << 20};
    static const char template_path[] = "tests/reference/data/chat-templates/chatml-tools.jinja";
    struct nvllm_tokenizer *tokenizer = NULL;
    struct nvllm_chat_template *chat_template = NULL;
    assert_int_equal(nvllm_tokenizer_open(&tokenizer, "models/tiny-qwen3", NULL), NVLLM_OK);
    assert_int_equal(nvllm_chat_template_open(&chat_template, NULL, template_path, NULL), NVLLM_OK);
    api.options = &options;
    api.tokenizer = tokenizer;
    api.max_model_len = 1 << 24;
    api.vocab_size = 4096;
    api.on_requests_ended = ignore_end;
    TAILQ_INIT(&api.requests);
    api_set_chat(&api, chat_template);
    *state = &api;
    return 0;
}

static int stop(void **state) {
    struct api *api = *state;
    nvllm_tokenizer_close((struct nvllm_tokenizer *)(uintptr_t)api->tokenizer);
    nvllm_chat_template_close((struct nvllm_chat_template *)(uintptr_t)api->chat_template);
    return 0;
}

static struct api_request *make_call(struct api *api, const struct endpoint *endpoint,
                                     const struct load *load, uint32_t count) {
    struct api_request *request = api_request_create(api, endpoint);
    assert_non_null(request);
    request->body = make_text(load, count);
    return request;
}

// ---- time ----

static double time_endpoint(struct api *api, const struct endpoint *endpoint,
                            const struct load *load, uint32_t count) {
    struct api_request *request = make_call(api, endpoint, load, count);
    double begin = seconds();
    bool is_good = endpoint->prepare(request);
    double time = seconds() - begin;
    if (!is_good) fail_msg("%s%s: %s", load->head, load->item, request->error.message);
    api_request_free(request);
    return time;
}

static int file_with(const struct buf *text) {
    int fd = memfd_create("lines", MFD_CLOEXEC);
    assert_true(fd >= 0);
    for (size_t at = 0; at < text->len;) {
        ssize_t len = write(fd, text->data + at, text->len - at);
        assert_true(len > 0);
        at += (size_t)len;
    }
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    return fd;
}

static double time_lines(const struct load *load, uint32_t count) {
    const struct nvllm_sampling_params sampling = NVLLM_SAMPLING_PARAMS_INIT;
    const struct request_defaults defaults = {.sampling = &sampling};
    struct buf text = make_text(load, count);
    struct prompt_source source = {.defaults = &defaults, .fd = file_with(&text)};
    line_reader_init(&source.reader, source.fd, "input", text.len);
    enum source_state state = SOURCE_REQUEST;
    double begin = seconds();
    while (state != SOURCE_END) {
        struct request_line line = {0};
        assert_int_equal(prompt_source_next(&source, true, &state, &line, NULL), OK);
        assert_int_not_equal(state, SOURCE_REFUSED);
        if (state == SOURCE_REQUEST) request_line_fini(&line);
    }
    double time = seconds() - begin;
    prompt_source_close(&source);
    buf_fini(&text);
    return time;
}

static double time_load(struct api *api, const struct endpoint *endpoint, const struct load *load,
                        uint32_t count) {
    return endpoint ? time_endpoint(api, endpoint, load, count) : time_lines(load, count);
}

// The least times of several tries: what else the machine does only adds to one.
static void check_load(struct api *api, const struct endpoint *endpoint, const struct load *load) {
    double small = 1e9, large = 1e9;
    for (int i = 0; i < TRIES; i++) {
        double time = time_load(api, endpoint, load, load->count);
        if (time < small) small = time;
        time = time_load(api, endpoint, load, load->count * GROWTH);
        if (time < large) large = time;
        if (large < RATIO_MAX * small) return;
    }
    fail_msg("%s%s: %u take %.2f ms, %u take %.2f ms", load->head, load->item, load->count,
             small * 1e3, load->count * GROWTH, large * 1e3);
}

// `endpoint` NULL: lines of JSONL.
static void check_loads(struct api *api, const struct endpoint *endpoint, const struct load *loads,
                        size_t num_loads) {
    for (size_t i = 0; i < num_loads; i++) check_load(api, endpoint, &loads[i]);
}

#define CHECK_LOADS(endpoint, ...)                                                                 \
    do {                                                                                           \
        static const struct load loads[] = {__VA_ARGS__};                                          \
        check_loads(*state, endpoint, loads, ARRAY_LEN(loads));                                    \
    } while (0)

#define HI "{'role':'user','content':'Hi'}"
#define TEXT "{'type':'text','text':'word'}"
#define ONE "{'messages':[" HI "],"
#define CHAT_TOOL "{'type':'function','function':{'name':'f#','parameters':{'type':'object'}}}"

static void test_chat(void **state) {
    CHECK_LOADS(
        &endpoint_chat, {"{'messages':[", HI, ",", "]}", 500},
        {"{'messages':[" HI ",", "{'role':'assistant','reasoning':'so','content':'word'}", ",",
         "," HI "]}", 500},
        {"{'messages':[", "{'role':'system','content':'word'}", ",", "," HI "]}", 500},
        {"{'messages':[", "{'role':'developer','content':'word'}", ",", "," HI "]}", 500},
        {"{'messages':[{'role':'user','content':[", TEXT, ",", "]}]}", 500},
        {"{'messages':[{'role':'user','content':'", "word ", "", "'}]}", 5000},
        {ONE "'tools':[", CHAT_TOOL, ",", "]}", 500},
        {ONE "'tool_choice':{'type':'function','function':{'name':'f499'}},'tools':[", CHAT_TOOL,
         ",", "]}", 500},
        {ONE "'tools':[{'type':'function','function':{'name':'f','parameters':{", "'p#':{}", ",",
         "}}}]}", 500},
        {"{'messages':[" HI ",{'role':'assistant','tool_calls':[",
         "{'id':'x#','function':{'name':'f','arguments':'{}'}}", ",", "]}," HI "]}", 500},
        {"{'messages':[" HI ",", "{'role':'tool','tool_call_id':'x#','content':'word'}", ",", "]}",
         500},
        {ONE "'chat_template_kwargs':{", "'k#':1", ",", "}}", 2000},
        {ONE, "'k#':1", ",", "}", 2000},
        {"{'continue_final_message':true,'messages':[" HI ",{'role':'assistant','content':'",
         "word ", "", "'}]}", 5000},
        {"{'continue_final_message':true,'messages':[" HI ",{'role':'assistant','content':'",
         "\\n ", "", "'}]}", 5000});
}

// Of a template that reads them: the others refuse them.
static void test_documents(void **state) {
    static const char template_path[] = "tests/reference/data/chat-templates/documents.jinja";
    struct api *api = *state;
    const struct nvllm_chat_template *others = api->chat_template;
    struct nvllm_chat_template *reader = NULL;
    assert_int_equal(nvllm_chat_template_open(&reader, NULL, template_path, NULL), NVLLM_OK);
    api_set_chat(api, reader);
    CHECK_LOADS(&endpoint_chat,
                {ONE "'documents':[", "{'title':'t#','text':'word'}", ",", "]}", 1000});
    api_set_chat(api, others);
    nvllm_chat_template_close(reader);
}

// A message, the beginning of an answer, and blanks behind it, each of that length.
static double time_begun(struct api *api, uint32_t len) {
    static const char first[] = "{'continue_final_message':true,'messages':[{'role':'user',"
                                "'content':'";
    struct buf head = {0};
    add(&head, first, 0);
    for (uint32_t i = 0; i < len; i++) add(&head, "a", 0);
    add(&head, "'},{'role':'assistant','content':'", 0);
    for (uint32_t i = 0; i < len; i++) add(&head, "a", 0);
    const struct load load = {head.data, " ", "", "'}]}", len};
    double time = time_endpoint(api, &endpoint_chat, &load, len);
    buf_fini(&head);
    return time;
}

// The template trims the begun answer, and the message before looks like the answer.
static void test_begun_answer(void **state) {
    static const char path[] = "tests/reference/data/chat-templates/strict-turns.jinja";
    struct api *api = *state;
    const struct nvllm_chat_template *before = api->chat_template;
    struct nvllm_chat_template *trims = NULL;
    assert_int_equal(nvllm_chat_template_open(&trims, NULL, path, NULL), NVLLM_OK);
    api_set_chat(api, trims);
    double small = 1e9, large = 1e9;
    for (int i = 0; i < TRIES && (i == 0 || large >= RATIO_MAX * small); i++) {
        double time = time_begun(api, 20000);
        if (time < small) small = time;
        time = time_begun(api, 20000 * GROWTH);
        if (time < large) large = time;
    }
    if (large >= RATIO_MAX * small) fail_msg("%.2f ms, %.2f ms", small * 1e3, large * 1e3);
    api_set_chat(api, before);
    nvllm_chat_template_close(trims);
}

#define USER(content) "{'max_tokens':1,'messages':[{'role':'user','content':[" content
#define ASSISTANT "{'max_tokens':1,'messages':[" HI ",{'role':'assistant','content':["

static void test_messages(void **state) {
    CHECK_LOADS(
        &endpoint_messages, {"{'max_tokens':1,'messages':[", HI, ",", "]}", 500},
        {USER(""), TEXT, ",", "]}]}", 500}, {ASSISTANT, TEXT, ",", "]}]}", 500},
        {USER(""), "{'type':'tool_result','tool_use_id':'x#','content':'r'}," TEXT, ",", "]}]}",
         300},
        {USER("{'type':'tool_result','tool_use_id':'x','content':["), TEXT, ",", "]}]}]}", 500},
        {ASSISTANT, "{'type':'tool_use','id':'x#','name':'f','input':{'a':1}}", ",", "]}," HI "]}",
         500},
        {ASSISTANT, "{'type':'thinking','thinking':'so'}", ",", "]}," HI "]}", 500},
        {ONE "'max_tokens':1,'system':[", TEXT, ",", "]}", 500},
        {ONE "'max_tokens':1,'tools':[", "{'name':'f#','input_schema':{'type':'object'}}", ",",
         "]}", 500});
    CHECK_LOADS(&endpoint_count_tokens, {"{'messages':[", HI, ",", "]}", 500});
}

#define FLAT_TOOL "{'type':'function','name':'f#','parameters':{'type':'object'}}"
#define OUTPUT "{'type':'function_call_output','call_id':'x#','output':'r'}"

static void test_responses(void **state) {
    CHECK_LOADS(
        &endpoint_responses, {"{'input':[", HI, ",", "]}", 500},
        {"{'input':[{'role':'user','content':[", "{'type':'input_text','text':'word'}", ",", "]}]}",
         500},
        {"{'input':[", "{'type':'function_call','call_id':'x#','name':'f'}", ",", "]}", 500},
        {"{'input':[", "{'type':'function_call','call_id':'x#','name':'f'}," OUTPUT, ",", "]}",
         300},
        {"{'input':[" HI ",",
         "{'type':'reasoning','content':[{'type':'reasoning_text','text':'so'}]}", ",", "]}", 500},
        {"{'input':'a','tools':[", FLAT_TOOL, ",", "]}", 500});
}

static void test_completions(void **state) {
    CHECK_LOADS(&endpoint_completions, {"{'prompt':'", "word ", "", "'}", 5000},
                {"{'prompt':'", "aqz", "", "'}", 5000}, {"{'prompt':'", " ", "", "'}", 10000},
                {"{'prompt':'", "73", "", "'}", 5000}, {"{'prompt':'", "\\n", "", "'}", 10000},
                {"{'prompt':'", "e\\u0301", "", "'}", 3000},
                {"{'prompt':'", "\\u0301\\u0323", "", "'}", 3000},
                {"{'prompt':'", "<|im_end|>", "", "'}", 3000},
                {"{'prompt':'", "<|im_e", "", "'}", 5000}, {"{'prompt':[", "7", ",", "]}", 5000},
                {"{'echo':true,'prompt':[", "7", ",", "]}", 5000},
                {"{'prompt':[", "'word'", ",", "]}", 500}, {"{'prompt':[", "[7,8]", ",", "]}", 500},
                {"{'echo':true,'prompt':[", "[7,8]", ",", "]}", 500});
}

// Other lists have so few entries at most that they cannot take long.
static void test_parameters(void **state) {
    CHECK_LOADS(&endpoint_completions, {"{'prompt':'a','stop_token_ids':[", "#", ",", "]}", 128},
                {"{'prompt':'a','allowed_token_ids':[", "#", ",", "]}", 5000},
                {"{'prompt':'a','bad_words':[", "'bad#'", ",", "]}", 128},
                {"{'prompt':'a','logit_bias':{", "'#':1", ",", "}}", 128});
}

static void test_tokens(void **state) {
    CHECK_LOADS(&endpoint_tokenize,
                {"{'return_token_strs':true,'prompt':'", "word ", "", "'}", 3000},
                {"{'messages':[", HI, ",", "]}", 500});
    CHECK_LOADS(&endpoint_detokenize, {"{'tokens':[", "7", ",", "]}", 5000});
    CHECK_LOADS(&endpoint_apply_template, {"{'messages':[", HI, ",", "]}", 500});
}

static void test_jsonl(void **state) {
    CHECK_LOADS(NULL, {"", "{'prompt':'word','max_tokens':5}", "\n", "\n", 500},
                {"{'prompt':'", "word ", "", "'}\n", 10000},
                {"{'prompt_token_ids':[", "7", ",", "]}\n", 5000},
                {"{'messages':[", HI, ",", "]}\n", 1000},
                {ONE "'tools':[", CHAT_TOOL, ",", "]}\n", 500},
                {"{'prompt':'a','allowed_token_ids':[", "#", ",", "]}\n", 5000});
}

// ---- cancelled requests ----

// One that is cancelled while it is read: each loop over what the client sent ends.
static void test_cancelled_inside(void **state) {
    static const struct {
        bool (*read)(struct api_request *request);
        struct load load;
    } cases[] = {
        {body_parse, {"{'prompt':[", "'word'", ",", "]}", 2}},
        {chat_body_check, {"{'messages':[", HI, ",", "]}", 2}},
        {messages_request_convert, {"{'messages':[", HI, ",", "]}", 2}},
        {messages_request_convert, {ASSISTANT, TEXT, ",", "]}]}", 2}},
        {responses_request_convert, {"{'input':[", HI, ",", "]}", 2}},
        {responses_request_convert, {"{'input':'a','tools':[", FLAT_TOOL, ",", "]}", 2}},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct api_request *request = make_call(*state, &endpoint_chat, &cases[i].load, 2);
        if (cases[i].read != body_parse) assert_true(body_parse(request));
        atomic_store(&request->is_cancelled, true);
        assert_false(cases[i].read(request));
        assert_string_equal(request->error.code, "cancelled");
        api_request_free(request);
    }
}

// The same within one message, whose blocks and calls may be many, and within a list of tools.
static void test_cancelled_conversion(void **state) {
    struct api_request *request = api_request_create(*state, &endpoint_messages);
    json_t *list = json_array(), *message = json_object(), *name = json_string("f");
    json_t *blocks = json_pack("[{s:s, s:s}]", "type", "text", "text", "a");
    json_t *tool = json_pack("{s:O}", "name", name);
    assert_non_null(request);
    assert_true(convert_content(request, message, blocks, "messages"));
    assert_true(convert_tool(request, list, tool, NULL));
    assert_true(convert_call(request, message, name, name, NULL, "messages"));
    atomic_store(&request->is_cancelled, true);
    assert_false(convert_content(request, message, blocks, "messages"));
    assert_false(convert_tool(request, list, tool, NULL));
    assert_false(convert_call(request, message, name, name, NULL, "messages"));
    assert_string_equal(request->error.code, "cancelled");
    json_decref(list);
    json_decref(message);
    json_decref(name);
    json_decref(tool);
    json_decref(blocks);
    api_request_free(request);
}

// One whose client left while it waited for a thread: nothing of it is read.
static void test_cancelled_before(void **state) {
    struct api *api = *state;
    const struct load load = {"{'messages':[", HI, ",", "]}", 2};
    struct event_base *base = event_base_new();
    api->loop_queue = loop_queue_create(base);
    assert_non_null(api->loop_queue);
    struct api_request *request = make_call(api, &endpoint_chat, &load, 2);
    api_request_cancel(request);
    request->work.run(&request->work);
    assert_string_equal(request->error.code, "cancelled");
    assert_null(request->root);
    assert_int_equal(api->num_requests, 1);
    loop_queue_destroy(api->loop_queue); // handles the end of the job, which frees the request
    assert_int_equal(api->num_requests, 0);
    event_base_free(base);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_begun_answer),
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_completions),
        cmocka_unit_test(test_parameters),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_jsonl),
        cmocka_unit_test(test_cancelled_inside),
        cmocka_unit_test(test_cancelled_conversion),
        cmocka_unit_test(test_cancelled_before),
    };
    return cmocka_run_group_tests_name("linear", tests, start, stop);
}
