#include "support/recurrent_model.h"

#include <stdio.h>
#include <unistd.h>

#include "support/cmocka_all.h"

static const char config[] =
    "{\"architectures\": [\"Qwen3_5ForCausalLM\"], \"model_type\": \"qwen3_5_text\","
    " \"vocab_size\": 4096, \"hidden_size\": 64, \"intermediate_size\": 96,"
    " \"num_hidden_layers\": 6, \"full_attention_interval\": 3, \"num_attention_heads\": 8,"
    " \"num_key_value_heads\": 4, \"head_dim\": 64, \"max_position_embeddings\": 4096,"
    " \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 4, \"linear_key_head_dim\": 32,"
    " \"linear_value_head_dim\": 32, \"tie_word_embeddings\": true, \"bos_token_id\": 4089,"
    " \"eos_token_id\": 4091}";

void recurrent_model_create(struct temp_folder *folder) {
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json",
                                        "chat_template.jinja"};
    temp_folder_create(folder);
    temp_folder_write_text(folder, "config.json", config);
    char here[512];
    assert_non_null(getcwd(here, sizeof here));
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char from[640], to[256];
        snprintf(from, sizeof from, "%s/models/tiny-qwen3/%s", here, files[i]);
        snprintf(to, sizeof to, "%s/%s", folder->path, files[i]);
        assert_int_equal(symlink(from, to), 0);
    }
}
