# The rules behind check_layers, over all C files given as arguments.
# A file's layer is the folder below src/ or lib/; "public" is include/, "tests" is tests/, examples/
# and the tests of a library in lib/.

BEGIN {
    # layer -> the layers it may include beside itself
    allowed["public"] = ""
    allowed["base"] = ""
    allowed["jinja"] = "base"
    allowed["checkpoint"] = "base public"
    allowed["hub"] = "base"
    allowed["text"] = "jinja checkpoint base"
    allowed["structured"] = "text base"
    allowed["backend"] = "base public"
    allowed["comm"] = "backend base"
    allowed["model"] = "backend comm checkpoint base"
    allowed["engine"] = "model backend comm checkpoint structured text base public"
    allowed["api"] = "engine hub structured text checkpoint base public"
    allowed["server"] = "api structured text checkpoint base public"
    allowed["cmd"] = "server api hub structured text checkpoint base public"
    # Folders in a layer -> the others of the same layer that they may include; "." is a file beside
    # the folders. Those files may include all of them, unless they have a line too.
    folder["base/text"] = "."
    folder["base/os"] = ". text"
    folder["base/json"] = ". text os"
    folder["base/thread"] = ". text os"
    folder["text/unicode"] = ""
    folder["text/chat"] = "unicode"
    folder["text/regex"] = ". unicode"
    folder["text/tokenizer"] = ". unicode regex"
    folder["structured/expr"] = ""
    folder["structured/vocabulary"] = ""
    folder["structured/grammar"] = "expr"
    folder["structured/unique"] = ""
    folder["structured/automaton"] = "expr vocabulary grammar unique"
    folder["structured/schema"] = "expr grammar"
    folder["structured/read"] = "expr vocabulary grammar schema"
    folder["model/families"] = "."
    folder["model/load"] = "."
    folder["model/."] = "load"
    folder["engine/params"] = ""
    folder["engine/schedule"] = ""
    folder["engine/draft"] = ""
    folder["engine/step"] = "params schedule draft"
    folder["engine/plan"] = "params schedule draft step"
    folder["engine/executor"] = "params step plan"
    folder["engine/request"] = "schedule draft step"
    folder["engine/."] = "params schedule draft step plan executor request"
    folder["engine/data_parallel"] = ". params request"
    folder["server/http"] = ""
    folder["server/chat"] = ""
    folder["server/loop"] = "http chat"
    folder["server/observe"] = "http chat loop"
    folder["server/page"] = "http chat loop"
    folder["server/api"] = "http chat loop observe page"
    folder["cmd/terminal"] = ""
    folder["cmd/options"] = "."
    folder["cmd/model"] = ". terminal"
    folder["cmd/generate"] = ". terminal model"
    folder["cmd/bench"] = ". terminal model"
    folder["cmd/chat"] = ". terminal model generate"
    for (name in folder) has_folders[substr(name, 1, index(name, "/") - 1)] = 1
    # Folders that know less than their layer.
    knows["server/http"] = "base server"
    knows["server/chat"] = "text base server"
    LINES_MAX = 600
    num_faults = 0
}

function fault(sentence) {
    printf "%s:%d: %s\n", FILENAME, FNR, sentence
    num_faults++
}

function layer_of_path(path,    parts) {
    split(path, parts, "/")
    if (parts[1] == "include") return "public"
    if (parts[1] == "src") return parts[2]
    if (parts[1] == "lib" && parts[3] != "tests") return parts[2]
    return "tests"
}

# "server/loop" of "server/loop/api.h"; "server/." of a file beside the folders
function folder_of(path,    parts, count) {
    count = split(path, parts, "/")
    return parts[1] "/" (count > 2 ? parts[2] : ".")
}

function check_folder(target, to,    own, other) {
    if (index(FILENAME, "src/") != 1) return
    own = folder_of(substr(FILENAME, 5))
    if (own in knows && index(" " knows[own] " ", " " to " ") == 0)
        fault("src/" own " may not include " to " (\"" target "\")")
    if (own == "server/http" && target ~ /^base\/json\//) fault("src/server/http knows no JSON")
    if (to != layer || !(layer in has_folders)) return
    other = folder_of(target)
    if (own == other || !(own in folder)) return
    if (index(" " folder[own] " ", " " substr(other, length(layer) + 2) " ") == 0)
        fault("src/" own " may not include src/" other " (\"" target "\")")
}

function may_include(from, to, target) {
    if (from == "tests" || from == to) return 1
    # Configurations of quantized weights name modules by regular expressions, which need no text.
    if (from == "checkpoint" && target ~ /^text\/(regex\/regex|effort)\.h$/) return 1
    return index(" " allowed[from] " ", " " to " ") > 0
}

function check_include(target,    parts, to) {
    if (target == "nanovllm.h") to = "public"
    else if (split(target, parts, "/") < 2) {
        if (layer != "tests") fault("\"" target "\" is included without its folder")
        return
    } else to = parts[1]
    if (layer != "tests" && to != "public" && !(to in allowed)) {
        fault("\"" target "\" is not in a known layer")
    } else if (!may_include(layer, to, target)) {
        fault(layer " may not include " to " (\"" target "\")")
    }
    check_folder(target, to)
    # A backend's inside is for its own files.
    if (target ~ /^backend\/[^\/]+\// && layer != "tests") {
        if (index(FILENAME, "src/backend/" parts[2] "/") != 1)
            fault("\"" target "\" is private to its backend")
    }
    # Of a library in lib/ others see the header that has its name.
    if (target ~ /^jinja\// && target != "jinja/jinja.h" && index(FILENAME, "lib/jinja/") != 1)
        fault("\"" target "\" is private to its library")
    # Scheduling is pure: nothing of devices, models or text.
    if (FILENAME ~ /^src\/engine\/schedule\/(scheduler|block_manager)[^\/]*$/ && to != "base" && to != "engine")
        fault("the scheduler and the block manager may include only base and engine")
}

function check_conditional(line) {
    if (layer == "tests" || layer == "base" || FILENAME ~ /^src\/backend\/cuda\//) return
    if (line ~ /^#[ \t]*ifndef [A-Z0-9_]+_H$/) return
    if (layer == "public" && line ~ /__cplusplus|__GNUC__/) return
    fault("#if belongs in base/")
}

# Devices are asked by backend/device_list.h. A key of published files and a function of nano-vllm have
# such a name too.
function check_device_name(line) {
    if (FILENAME !~ /^src\// || FILENAME ~ /^src\/backend\/(cuda\/|device_list\.h$)/) return
    if (line ~ /"use_cuda_fp16"|\/\/ nano-vllm: /) return
    if (tolower(line) ~ /cuda|nccl/) fault("a device's name belongs in its folder and in device_list.h")
}

# What depends on the process's locale. A printf's format stands in its line or in the next.
function check_locale(code, line) {
    if (FILENAME ~ /^src\/base\/text\/c_locale\.[ch]$/) return
    if (code ~ /(^|[^A-Za-z0-9_])(strto(d|f|ld)|atof|vsnprintf|strerror|strftime|setlocale|localeconv|strcoll|strxfrm|strn?casecmp|to(upper|lower)|is(alpha|alnum|upper|lower|space|print|graph|punct|cntrl|blank)|[a-z]*scanf|mbs?r?towcs?|wcwidth)[ \t]*\(/)
        fault("this depends on the locale: use base/text/c_locale.h")
    if (code ~ /(^|[^A-Za-z0-9_])(snprintf|fprintf)[ \t]*\(/) last_printf = FNR
    if (last_printf && FNR - last_printf <= 1 && line ~ /"[^"]*%[-+ #0]*[0-9*]*(\.[0-9*]+)?[aAeEfFgG]/) {
        fault("a number printed by the locale: use c_locale_snprintf")
        last_printf = 0
    }
}

# The code of a line: without strings, character constants and comments.
function code_of(line,    code, i) {
    gsub(/\\./, "", line)
    gsub(/"[^"]*"/, "\"\"", line)
    gsub(/'[^']*'/, "0", line)
    code = ""
    while (line != "") {
        if (in_comment) {
            i = index(line, "*/")
            if (!i) return code
            line = substr(line, i + 2)
            in_comment = 0
        } else {
            i = match(line, /\/\*|\/\//)
            if (!i) return code line
            code = code substr(line, 1, i - 1)
            if (substr(line, i, 2) == "//") return code
            line = substr(line, i + 2)
            in_comment = 1
        }
    }
    return code
}

function end_of_file() {
    # Generated tables of data are exempt: splitting them helps nobody. So is the public header, for
    # programs are to find all of the API in one.
    if (num_lines > LINES_MAX && file !~ /_table\.[ch]$/ && file !~ /^include\//) {
        printf "%s: %d lines, at most %d: split the file\n", file, num_lines, LINES_MAX
        num_faults++
    }
}

FNR == 1 {
    if (NR > 1) end_of_file()
    file = FILENAME
    layer = layer_of_path(FILENAME)
    in_comment = 0
    function_start = 0
    last_printf = 0
    if (layer != "tests" && !(layer in allowed)) fault(FILENAME ~ /^lib\// ? "lib/" layer " is not a known library" : "src/" layer " is not a known layer")
    if (layer in has_folders && FILENAME ~ /^src\// && folder_of(substr(FILENAME, 5)) !~ /\/\.$/ && !(folder_of(substr(FILENAME, 5)) in folder))
        fault("src/" folder_of(substr(FILENAME, 5)) " is not a known folder")
}

{ num_lines = FNR }

/(^|[^A-Za-z0-9_])(TO[D]O|FIX[M]E|XX[X])([^A-Za-z0-9_]|$)/ { fault("left open: do it, or say in doc/ what is not there") }

/^#[ \t]*include "/ {
    split($0, quoted, "\"")
    check_include(quoted[2])
    next
}

/^#[ \t]*include <jansson\.h>/ {
    if (FILENAME ~ /^src\/server\/http\//) fault("src/server/http knows no JSON")
}

/^#[ \t]*(if|ifdef|ifndef|elif)/ { check_conditional($0) }

{
    check_device_name($0)
    code = code_of($0)
    sub(/[ \t]+$/, "", code)
    if (layer != "tests" && layer != "cmd") {
        # The variables of huggingface_hub say where models by name lie, for every program.
        if (FILENAME != "src/hub/hub_settings.c" && code ~ /(^|[^A-Za-z0-9_])(getenv|secure_getenv)[ \t]*\(/) fault("getenv belongs in cmd/")
        if (code ~ /(^|[^A-Za-z0-9_])(exit|_exit|_Exit|quick_exit)[ \t]*\(/) fault("exit belongs in cmd/")
        if (code ~ /(^|[^A-Za-z0-9_])abort[ \t]*\(/ && FILENAME != "src/base/check.c")
            fault("abort belongs in CHECK (base/check.h)")
        # wait.cuh prints from kernels, in test builds.
        if (FILENAME != "src/backend/cuda/wait.cuh" && (code ~ /(^|[^A-Za-z0-9_])(printf|puts|putchar|vprintf|perror)[ \t]*\(/ || code ~ /(^|[^A-Za-z0-9_])stdout([^A-Za-z0-9_]|$)/))
            fault("only cmd/ prints")
        check_locale(code, $0)
        if (code ~ /(^|[^A-Za-z0-9_])stderr([^A-Za-z0-9_]|$)/ && FILENAME !~ /^src\/base\/(log|check)\.c$/)
            fault("only cmd/ prints; the library logs through base/log.h")
    }
    # clang-format puts a function's braces in these places.
    if (code ~ /^[A-Za-z_].*\{$/ || (code ~ /^ .*\) ?\{$/ && !function_start && depth_zero)) {
        function_start = FNR
    }
    depth_zero = (code ~ /^[A-Za-z_]/ || (depth_zero && code ~ /^ /)) && code !~ /[;{}]$/
    if (code ~ /^\}/) {
        if (function_start && code ~ /^\}$/ && FNR - function_start + 1 > 100)
            fault("a function of " (FNR - function_start + 1) " lines, at most 100")
        function_start = 0
    }
}

END {
    end_of_file()
    if (num_faults) {
        printf "%d rule%s broken\n", num_faults, num_faults == 1 ? "" : "s"
        exit 1
    }
}
