"""What the job was doing when it ended, from the frames and lines before the message."""

import re

from gpuqueue.diagnose.finding import Phase

_BEFORE, _AFTER = 90, 3

# From the inside out: saving and evaluation are called from within training, training from within main.
_FRAMES: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (
        Phase.saving,
        re.compile(
            r"in (?:_?save\w*|save_checkpoint|_save_checkpoint|save_pretrained|save_model|save_state\w*"
            r"|_save_to_state_dict|write_record|write_end_of_file|dump|dump_checkpoint|_?consolidat\w*"
            r"|get_fp32_state_dict\w*|_zero3_consolidated\w*|full_state_dict|_full_optim_state_dict"
            r"|save_ckpt|serialize_file|store_checkpoint)\b|torch\.save\(|\.save_pretrained\("
            r"|\.save_checkpoint\(|\.save_model\(|save_file\(|\.save_state\("
        ),
    ),
    (
        Phase.evaluation,
        re.compile(
            r"in (?:_?evaluat\w+|evaluation_loop|eval_loop|eval_step|prediction_step|prediction_loop"
            r"|predict\w*|validation_step|_?validat\w+|_run_validation|_run_sanity_check|compute_metrics"
            r"|nested_concat|nested_gather|test_step|test_loop|eval_\w+|run_eval\w*"
            r"|preprocess_logits_for_metrics)\b|\.evaluate\(|= ?evaluate\(|eval_pred|\bvalidate\("
        ),
    ),
    (
        Phase.load,
        re.compile(
            r"in (?:from_pretrained|_from_pretrained|_load_\w+|load_\w+|_move_model_to_device"
            r"|caching_allocator_warmup|set_module_tensor_to_device|dispatch_model"
            r"|prepare_model_for_kbit_training|determine_num_available_blocks|profile_run|init_device"
            r"|restore_checkpoint|replace_with_bnb_linear|_initialize_kv_caches"
            r"|_check_enough_kv_cache_memory|initialize_cache|build_model|get_peft_model|create_weights)\b"
            r"|\.from_pretrained\(|load_state_dict\(|torch\.load\("
        ),
    ),
    (
        Phase.training,
        re.compile(
            r"in (?:training_step|train_step|_?inner_training_loop|train_one_epoch|train_epoch\w*|train_loop"
            r"|backward|_run_backward|optimizer_step|compute_loss|fit|_fit_impl|train)\b|\.backward\("
            r"|optimi[sz]er\.step\(|\btrain(?:ing)?_step\(|\.train\("
        ),
    ),
    (
        Phase.load,
        re.compile(r"\.(?:to|cuda)\(\s*(?:device\w*|self\.\w*device\w*|\"cuda|'cuda|rank|local_rank|\))|in _apply\b"),
    ),
)

_STATES: tuple[tuple[Phase, re.Pattern[str]], ...] = (
    (
        Phase.saving,
        re.compile(r"\bsaving (?:the )?(?:model|checkpoint|state|optimizer|weights)|\bsaving .*checkpoint", re.I),
    ),
    (
        Phase.evaluation,
        re.compile(r"\*+ running (?:evaluation|prediction)|\b(?:evaluating|validating)\b|^\s*validation\b", re.I),
    ),
    (
        Phase.load,
        re.compile(
            r"\bloading (?:checkpoint|model|pipeline|weights|safetensors)|\bload_tensors:|llama_model_load"
            r"|llm_load_|\bprofiling\b|model loading",
            re.I,
        ),
    ),
    (
        Phase.training,
        re.compile(
            r"\bloss['\"]?\s*[:=]|\b(?:step|iter|epoch)\b\s*[:=\[]?\s*\d+|\d+/\d+ \[\d+:\d+<"
            r"|\*+ running training",
            re.I,
        ),
    ),
)


def phase_at(lines: tuple[str, ...], at: int) -> Phase | None:
    """The phase in which the message on line `at` came, or None where nothing tells."""
    first = max(0, at - _BEFORE)
    frames = [line for line in lines[first : at + 1] if _is_frame(line)]
    for phase, pattern in _FRAMES:
        if any(pattern.search(line) for line in frames):
            return phase
    for line in reversed(lines[first : at + 1 + _AFTER]):
        for phase, pattern in _STATES:
            if pattern.search(line):
                return phase
    return None


def _is_frame(line: str) -> bool:
    """A line of a traceback: it names a file, or is source text indented behind a rank or a logger's name."""
    return 'File "' in line or line.startswith(("    ", "\t")) or "    " in line[:80]
