"""A Trainer script of the usual kind: settings from the command line."""

import argparse

from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="mistralai/Mistral-7B-v0.1")
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--rank", type=int, default=64)
parser.add_argument("--epochs", type=float, default=1.0)
args = parser.parse_args()

model = AutoModelForCausalLM.from_pretrained(args.model, load_in_8bit=True)
model = prepare_model_for_kbit_training(model)
model = get_peft_model(model, LoraConfig(r=args.rank, lora_alpha=16, modules_to_save=["lm_head"]))
training_args = TrainingArguments(
    "out",
    per_device_train_batch_size=args.batch_size,
    gradient_accumulation_steps=32 // args.batch_size,
    gradient_checkpointing=True,
    fp16=True,
    optim="adamw_torch",
    num_train_epochs=args.epochs,
)
Trainer(model=model, args=training_args, train_dataset=None).train()
