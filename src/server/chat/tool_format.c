#include "server/chat/tool_format.h"

#include <string.h>

#include "base/compiler.h"
#include "server/chat/call_notation.h"

enum {
    HERMES,
    LLAMA3_JSON,
    MISTRAL,
    MISTRAL_ARGS,
    HARMONY,
    GLM45,
    MINIMAX_M2,
    QWEN3_XML,
    GEMMA4,
    HUNYUAN,
    NEMOTRON,
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    KIMI_K2,
    PYTHONIC,
    LLAMA4_PYTHONIC,
    LFM2,
    COHERE_COMMAND3,
    COHERE_COMMAND4
};

static const struct tool_tags glm45_tags = {
    .before_name = "",
    .after_name = "",
    .before_key = "<arg_key>",
    .after_key = "</arg_key>",
    .before_value = "<arg_value>",
    .after_value = "</arg_value>",
    .end_call = "",
};

static const struct tool_tags minimax_m2_tags = {
    .before_name = "<invoke name=\"",
    .after_name = "\">",
    .before_key = "<parameter name=\"",
    .after_key = "\">",
    .before_value = "",
    .after_value = "</parameter>",
    .end_call = "</invoke>",
};

static const struct tool_tags qwen3_xml_tags = {
    .before_name = "<function=",
    .after_name = ">",
    .before_key = "<parameter=",
    .after_key = ">",
    .before_value = "",
    .after_value = "</parameter>",
    .end_call = "</function>",
    .is_padded = true,
};

static const struct tool_tags gemma4_tags = {
    .before_name = "call:",
    .after_name = "{",
    .before_key = "",
    .after_key = ":",
    .before_value = "",
    .after_value = NOTATION_QUOTE,
    .end_call = "}",
    .has_notation = true,
};

#define DEEPSEEK_CALLS "<｜tool▁calls▁begin｜>"
#define DEEPSEEK_CALLS_END "<｜tool▁calls▁end｜>"
#define DEEPSEEK_CALL "<｜tool▁call▁begin｜>"
#define DEEPSEEK_CALL_END "<｜tool▁call▁end｜>"
#define DEEPSEEK_SEP "<｜tool▁sep｜>"

static const struct tool_tags deepseek_v3_tags = {
    .before_name = DEEPSEEK_CALL "function" DEEPSEEK_SEP,
    .after_name = "\n```json",
    .before_key = "",
    .after_key = "",
    .before_value = "",
    .after_value = "",
    .end_call = "```" DEEPSEEK_CALL_END,
    .is_padded = true,
    .has_json = true,
};

static const struct tool_tags deepseek_v31_tags = {
    .before_name = DEEPSEEK_CALL,
    .after_name = DEEPSEEK_SEP,
    .before_key = "",
    .after_key = "",
    .before_value = "",
    .after_value = "",
    .end_call = DEEPSEEK_CALL_END,
    .has_json = true,
};

static const struct tool_tags kimi_k2_tags = {
    .before_name = "<|tool_call_begin|>",
    .after_name = "<|tool_call_argument_begin|>",
    .before_key = "",
    .after_key = "",
    .before_value = "",
    .after_value = "",
    .end_call = "<|tool_call_end|>",
    .has_json = true,
    .has_id = true,
};

#define COHERE_ACTION "<|START_ACTION|>"
// Cohere's calls have numbers from 0 on, and the list has each on a line.
#define COHERE                                                                                     \
    .mark = COHERE_ACTION, .end_mark = "<|END_ACTION|>", .list = true, .open_list = "[\n    ",     \
    .close_list = "\n]", .before_number = "{\"tool_call_id\": \"",                                 \
    .before_name = "\", \"tool_name\": \"",                                                        \
    .after_name = "\", \"parameters\":", .after_arguments = "}", .between = ",\n    "

#define PYTHON_CALL                                                                                \
    .list = true, .python = true, .before_name = "", .after_name = "(", .after_arguments = ")",    \
    .between = ", "

static const struct tool_format formats[] = {
    [HERMES] = {.name = "hermes",
                .mark = "<tool_call>",
                .end_mark = "</tool_call>",
                .before_name = "{\"name\": \"",
                .after_name = "\", \"arguments\":",
                .after_arguments = "}",
                .between = "\n"},
    [LLAMA3_JSON] = {.name = "llama3_json",
                     .mark = "<|python_tag|>",
                     .bare = true,
                     .separator = ';',
                     .before_name = "{\"name\": \"",
                     .after_name = "\", \"parameters\":",
                     .after_arguments = "}",
                     .between = "; "},
    [MISTRAL] = {.name = "mistral",
                 .mark = "[TOOL_CALLS]",
                 .list = true,
                 .short_ids = true,
                 .before_name = "{\"name\": \"",
                 .after_name = "\", \"arguments\":",
                 .after_arguments = "}",
                 .between = ", "},
    // Mistral's tokenizers since 2025. Read as `mistral` is; only how calls are written differs.
    [MISTRAL_ARGS] = {.name = "mistral_args",
                      .mark = "[TOOL_CALLS]",
                      .list = true,
                      .short_ids = true,
                      .before_name = "",
                      .after_name = "[ARGS]",
                      .after_arguments = "",
                      .between = ""},
    [HARMONY] = {.name = "harmony",
                 .mark = "<|channel|>",
                 .has_channels = true,
                 .before_name = "",
                 .after_name = "",
                 .after_arguments = "",
                 .between = ""},
    [GLM45] = {.name = "glm45",
               .mark = "<tool_call>",
               .end_mark = "</tool_call>",
               .tags = &glm45_tags,
               .before_name = "",
               .after_name = "",
               .after_arguments = "",
               .between = "\n"},
    [MINIMAX_M2] = {.name = "minimax_m2",
                    .mark = "<minimax:tool_call>",
                    .end_mark = "</minimax:tool_call>",
                    .tags = &minimax_m2_tags,
                    .before_name = "",
                    .after_name = "",
                    .after_arguments = "",
                    .between = "\n"},
    [QWEN3_XML] = {.name = "qwen3_xml",
                   .mark = "<tool_call>",
                   .end_mark = "</tool_call>",
                   .tags = &qwen3_xml_tags,
                   .before_name = "",
                   .after_name = "",
                   .after_arguments = "",
                   .between = "\n"},
    [HUNYUAN] = {.name = "hunyuan_a13b",
                 .mark = "<tool_calls>",
                 .end_mark = "</tool_calls>",
                 .list = true,
                 .before_name = "{\"name\": \"",
                 .after_name = "\", \"arguments\":",
                 .after_arguments = "}",
                 .between = ", "},
    [NEMOTRON] = {.name = "nemotron_json",
                  .mark = "<TOOLCALL>",
                  .end_mark = "</TOOLCALL>",
                  .list = true,
                  .before_name = "{\"name\": \"",
                  .after_name = "\", \"arguments\":",
                  .after_arguments = "}",
                  .between = ", "},
    [DEEPSEEK_V3] = {.name = "deepseek_v3",
                     .mark = DEEPSEEK_CALLS,
                     .end_mark = DEEPSEEK_CALLS_END,
                     .tags = &deepseek_v3_tags,
                     .before_name = "",
                     .after_name = "",
                     .after_arguments = "",
                     .between = "\n"},
    [DEEPSEEK_V31] = {.name = "deepseek_v31",
                      .mark = DEEPSEEK_CALLS,
                      .end_mark = DEEPSEEK_CALLS_END,
                      .tags = &deepseek_v31_tags,
                      .before_name = "",
                      .after_name = "",
                      .after_arguments = "",
                      .between = ""},
    [KIMI_K2] = {.name = "kimi_k2",
                 .mark = "<|tool_calls_section_begin|>",
                 .end_mark = "<|tool_calls_section_end|>",
                 .tags = &kimi_k2_tags,
                 .before_name = "",
                 .after_name = "",
                 .after_arguments = "",
                 .between = ""},
    [GEMMA4] = {.name = "gemma4",
                .mark = "<|tool_call>",
                .end_mark = "<tool_call|>",
                .tags = &gemma4_tags,
                .before_name = "",
                .after_name = "",
                .after_arguments = "",
                .between = ""},
    [PYTHONIC] = {.name = "pythonic", .mark = "<|python_tag|>", .bare = true, PYTHON_CALL},
    [LLAMA4_PYTHONIC] = {.name = "llama4_pythonic",
                         .mark = "<|python_start|>",
                         .end_mark = "<|python_end|>",
                         .bare = true,
                         PYTHON_CALL},
    [LFM2] = {.name = "lfm2",
              .mark = "<|tool_call_start|>",
              .end_mark = "<|tool_call_end|>",
              PYTHON_CALL},
    [COHERE_COMMAND3] = {.name = "cohere_command3",
                         .text_marks = {"<|START_RESPONSE|>", "<|END_RESPONSE|>"},
                         COHERE},
    [COHERE_COMMAND4] = {.name = "cohere_command4",
                         .text_marks = {"<|START_TEXT|>", "<|END_TEXT|>"},
                         COHERE},
};

// The first row wins whose texts are all in the template, and whose `lacks` are not.
static const struct {
    int format;
    const char *has[2], *lacks[2];
} rows[] = {
    {HARMONY, {"<|channel|>", "<|message|>"}, {NULL}},
    {GEMMA4, {"<|tool_call>", NOTATION_QUOTE}, {NULL}},
    // DeepSeek-V3 and R1 fence the arguments.
    {DEEPSEEK_V3, {DEEPSEEK_CALLS, "```json"}, {NULL}},
    {DEEPSEEK_V31, {DEEPSEEK_CALLS, DEEPSEEK_SEP}, {NULL}},
    {KIMI_K2, {"<|tool_calls_section_begin|>", "<|tool_call_argument_begin|>"}, {NULL}},
    {MISTRAL_ARGS, {"[TOOL_CALLS]", "[ARGS]"}, {NULL}},
    {MISTRAL, {"[TOOL_CALLS]"}, {NULL}},
    {MINIMAX_M2, {"<minimax:tool_call>", "<invoke name="}, {NULL}},
    // Qwen3-Coder, Qwen3.5 and GLM-4.5 write tags between those of Hermes.
    {QWEN3_XML, {"<tool_call>", "<function="}, {NULL}},
    {GLM45, {"<tool_call>", "<arg_key>"}, {NULL}},
    {HERMES, {"<tool_call>"}, {NULL}},
    {HUNYUAN, {"<tool_calls>"}, {NULL}},
    {NEMOTRON, {"<TOOLCALL>"}, {NULL}},
    {COHERE_COMMAND4, {COHERE_ACTION, "<|START_TEXT|>"}, {NULL}},
    {COHERE_COMMAND3, {COHERE_ACTION}, {NULL}},
    {LFM2, {"<|tool_call_start|>"}, {NULL}},
    {LFM2, {"<|tool_list_start|>"}, {NULL}},
    // The sentence in which Meta's guides teach calls in Python's form.
    {LLAMA4_PYTHONIC, {"[func_name1(", "<|header_start|>"}, {NULL}},
    {PYTHONIC, {"[func_name1("}, {NULL}},
    {LLAMA3_JSON, {"<|python_tag|>"}, {NULL}},
    {LLAMA3_JSON, {"{\"name\": function name, \"parameters\":"}, {NULL}},
    // The first templates of LFM2.5 name no mark. Any mark of the rows before says more.
    {LFM2, {"List of tools: ["}, {NULL}},
};

const struct tool_format *tool_format_find(const char *name) {
    for (size_t i = 0; i < ARRAY_LEN(formats); i++) {
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    }
    return NULL;
}

const char *tool_format_name(size_t index) {
    return index < ARRAY_LEN(formats) ? formats[index].name : NULL;
}

static bool contains(const char *source, size_t len, const char *text) {
    return memmem(source, len, text, strlen(text)) != NULL;
}

const struct tool_format *tool_format_of_template(const char *source, size_t len) {
    for (size_t row = 0; row < ARRAY_LEN(rows); row++) {
        bool fits = true;
        for (size_t i = 0; i < ARRAY_LEN(rows[row].has); i++) {
            const char *has = rows[row].has[i], *lacks = rows[row].lacks[i];
            if (has && !contains(source, len, has)) fits = false;
            if (lacks && contains(source, len, lacks)) fits = false;
        }
        if (fits) return &formats[rows[row].format];
    }
    return NULL;
}

bool tool_format_has_json(const struct tool_format *format) {
    return format->tags ? format->tags->has_json : !format->python;
}

bool tool_format_is_name_byte(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.';
}

bool tool_format_fits_name(const struct tool_format *format, const char *name) {
    bool in_json = format->before_name[0] != '\0';
    for (const char *c = name; *c; c++) {
        if (in_json && ((unsigned char)*c < 0x20 || *c == '"' || *c == '\\')) return false;
        if (!in_json && !tool_format_is_name_byte(*c)) return false;
    }
    return *name != '\0';
}
