"""Transformers' Trainer under Accelerate: a tiny model from a configuration, gradient checkpoints, saving, resuming."""

import logging
import sys

import torch
from transformers import EarlyStoppingCallback, GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments


class Text(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        ids = torch.randint(0, 100, (24,))
        return {"input_ids": ids, "labels": ids, "attention_mask": torch.ones_like(ids)}


def main():
    logging.basicConfig(level=logging.INFO)
    logging.getLogger("transformers").setLevel(logging.INFO)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=32, n_embd=32, n_layer=2, n_head=2))
    arguments = TrainingArguments(
        sys.argv[1], num_train_epochs=3, per_device_train_batch_size=4, logging_steps=4, eval_strategy="epoch",
        save_strategy="epoch", load_best_model_at_end=True, gradient_checkpointing=True, use_cpu=True,
        dataloader_num_workers=1, report_to=[], log_level="info", ddp_find_unused_parameters=True,
    )
    trainer = Trainer(model, arguments, train_dataset=Text(), eval_dataset=Text(),
                      callbacks=[EarlyStoppingCallback(1)])
    trainer.train()
    print(trainer.evaluate())
    trainer.train(resume_from_checkpoint=True)


if __name__ == "__main__":
    main()
