"""A training with Hugging Face's Trainer on a tiny random model, for test_resume_hf_trainer.py. Resumes from
`--resume_from_checkpoint PATH`, else from GQ_RESUME_FROM, as a user's own script would."""

import argparse
import os
import time
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainerCallback, TrainingArguments, set_seed

STEPS, SAVE_EVERY = 20, 5
SLOW_FROM = 11  # the first attempt: so that it is killed between two saves
SLOW_STEP_S = 2


class Diary(TrainerCallback):
    def on_step_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        if os.environ["GQ_ATTEMPT"] == "1" and state.global_step >= SLOW_FROM:
            time.sleep(SLOW_STEP_S)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float], **more: Any) -> None:
        if "loss" in logs:
            print(f"step {state.global_step} loss {logs['loss']:.6f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--resume_from_checkpoint", default=os.environ.get("GQ_RESUME_FROM") or None)
    resume = parser.parse_args().resume_from_checkpoint
    set_seed(0)
    torch.set_num_threads(1)
    shape = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    model = LlamaForCausalLM(LlamaConfig(num_attention_heads=2, **shape))
    texts = (torch.randint(0, 64, (64, 1)) + torch.arange(16)) % 64  # counting, which is soon learnt
    arguments = TrainingArguments(
        output_dir=os.environ["GQ_CHECKPOINT_DIR"],
        max_steps=STEPS,
        save_steps=SAVE_EVERY,
        logging_steps=1,
        learning_rate=1e-2,
        per_device_train_batch_size=4,
        use_cpu=True,
        report_to=[],
        disable_tqdm=True,
    )
    data = [{"input_ids": text, "labels": text} for text in texts]
    trainer = Trainer(model=model, args=arguments, train_dataset=data, callbacks=[Diary()])
    print(f"resuming from {resume}", flush=True)
    trainer.train(resume_from_checkpoint=resume)
    print(f"done at step {trainer.state.global_step}", flush=True)


if __name__ == "__main__":
    main()
