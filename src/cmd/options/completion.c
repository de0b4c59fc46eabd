/* `nanovllm completion` prints a shell script with which Tab completes commands, flags and their
 * values. The frame of each script is here. options_print.c makes each command's part from its
 * options. */
#include <stdio.h>
#include <string.h>

#include "base/text/buf.h"
#include "cmd/commands.h"

static const char details[] =
    "Prints the script that makes Tab complete commands, flags and their values.\n"
    "If nanovllm is installed, the shell finds the script. If not, put one of these\n"
    "into the shell's start file:\n"
    "\n"
    "  ~/.bashrc                   eval \"$(nanovllm completion bash)\"\n"
    "  ~/.zshrc, after compinit    eval \"$(nanovllm completion zsh)\"\n"
    "  ~/.config/fish/config.fish  nanovllm completion fish | source\n";

static const char bash_begin[] =
    "# Completion of nanovllm in bash, made by `nanovllm completion bash`.\n"
    "# _nanovllm_COMMAND sets the command's flags and arguments, and for a flag in $1 how its "
    "value\n"
    "# completes: value is words, folders, files or any, and words has the words.\n\n";

static const char bash_end[] =
    "_nanovllm() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}\n"
    "    local command=${COMP_WORDS[1]} flags='' arguments='' value='' words=''\n"
    "    COMPREPLY=()\n"
    "    # --flag=value is three words here, or two before the value is begun.\n"
    "    if [[ $cur == = ]]; then\n"
    "        cur=''\n"
    "    elif [[ $prev == = ]]; then\n"
    "        prev=${COMP_WORDS[COMP_CWORD - 2]}\n"
    "    fi\n"
    "    if ((COMP_CWORD == 1)) || [[ $command == help ]]; then\n"
    "        arguments=$(_nanovllm_commands)\n"
    "    elif declare -F \"_nanovllm_$command\" >/dev/null; then\n"
    "        \"_nanovllm_$command\" \"$prev\"\n"
    "    fi\n"
    "    case $value:$cur in\n"
    "    words:*) ;;\n"
    "    folders:*) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -d -- "
    "\"$cur\") ;;\n"
    "    files:*) compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen -f -- "
    "\"$cur\") ;;\n"
    "    :-*) words=$flags ;;\n"
    "    :*) words=$arguments ;;\n"
    "    esac\n"
    "    [[ -z $words ]] || mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
    "}\n"
    "complete -F _nanovllm nanovllm\n";

static const char zsh_begin[] =
    "#compdef nanovllm\n"
    "# Completion of nanovllm in zsh, made by `nanovllm completion zsh`.\n\n";

static const char zsh_end[] =
    "_nanovllm_help() {\n"
    "    _arguments '1:command:_nanovllm_commands'\n"
    "}\n\n"
    "_nanovllm() {\n"
    "    local context state state_descr line\n"
    "    typeset -A opt_args\n"
    "    _arguments '1:command:_nanovllm_commands' '*:: :->argument'\n"
    "    [[ $state == argument ]] && (( $+functions[_nanovllm_$words[1]] )) && "
    "_nanovllm_$words[1]\n"
    "}\n\n"
    "# compinit runs this file as the function; eval defines it.\n"
    "if [[ $funcstack[1] == _nanovllm ]]; then\n"
    "    _nanovllm \"$@\"\n"
    "else\n"
    "    compdef _nanovllm nanovllm\n"
    "fi\n";

static const char fish_begin[] =
    "# Completion of nanovllm in fish, made by `nanovllm completion fish`.\n\n"
    "function __nanovllm_begins\n"
    "    test (count (commandline -opc)) -eq 1\n"
    "end\n"
    "function __nanovllm_is\n"
    "    set -l words (commandline -opc)\n"
    "    test (count $words) -gt 1; and test $words[2] = $argv[1]\n"
    "end\n"
    "complete -c nanovllm -f\n";

// ---- the commands' names, which complete the command itself and the argument of help ----

static void print_bash_commands(FILE *out) {
    const struct cli_command *command;
    fputs("_nanovllm_commands() {\n    echo help", out);
    for (size_t i = 0; (command = command_at(i)); i++) fprintf(out, " %s", command->name);
    fputs("\n}\n\n", out);
}

static void print_zsh_commands(FILE *out) {
    const struct cli_command *command;
    fputs("_nanovllm_commands() {\n    local -a commands=(\n", out);
    for (size_t i = 0; (command = command_at(i)); i++) {
        fprintf(out, "        \"%s:%s\"\n", command->name, command->summary);
    }
    fputs("        'help:help on a command'\n"
          "    )\n    _describe command commands\n}\n\n",
          out);
}

static void print_fish_commands(FILE *out) {
    const struct cli_command *command;
    for (size_t i = 0; (command = command_at(i)); i++) {
        fprintf(
            out,
            "complete -c nanovllm -n '__nanovllm_begins || __nanovllm_is help' -a %s -d \"%s\"\n",
            command->name, command->summary);
    }
    fputs("complete -c nanovllm -n __nanovllm_begins -a help -d 'help on a command'\n", out);
}

static const struct shell {
    const char *name;
    enum options_form form;
    const char *begin, *end;
    void (*print_commands)(FILE *out);
} shells[] = {
    {"bash", OPTIONS_BASH, bash_begin, bash_end, print_bash_commands},
    {"zsh", OPTIONS_ZSH, zsh_begin, zsh_end, print_zsh_commands},
    {"fish", OPTIONS_FISH, fish_begin, "", print_fish_commands},
};

static void print_begin(FILE *out, const void *shell_) {
    const struct shell *shell = shell_;
    fputs(shell->begin, out);
    shell->print_commands(out);
}

static void print_end(FILE *out, const void *shell_) {
    const struct shell *shell = shell_;
    fputs(shell->end, out);
}

static int print_script(const struct shell *shell) {
    int exit_code = cli_print_whole(print_begin, shell);
    const struct cli_command *command;
    for (size_t i = 0; !exit_code && (command = command_at(i)); i++) {
        exit_code = command_print(command, shell->form);
    }
    return exit_code ? exit_code : cli_print_whole(print_end, shell);
}

int cmd_completion(int argc, char **argv) {
    struct options options = {.command = "completion",
                              .synopsis = "bash|zsh|fish",
                              .details = details,
                              .arg_choices = "bash|zsh|fish"};
    int exit_code;
    if (!cli_parse(&options, argc, argv, &exit_code)) return exit_code;
    if (options.num_args != 1)
        return cli_usage_error(&options, "want one shell: bash, zsh or fish");
    for (size_t i = 0; i < ARRAY_LEN(shells); i++) {
        if (strcmp(options.args[0], shells[i].name) == 0) return print_script(&shells[i]);
    }
    return cli_usage_error(&options, "unknown shell %s: want bash, zsh or fish", options.args[0]);
}
