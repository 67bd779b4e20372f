"""Lightning's Trainer on CPU with DDP: its banners, bars, warnings, early stopping and checkpoints."""

import logging
import sys

import lightning
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger


class Classifier(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.Dropout(0.1), torch.nn.Linear(32, 3))
        self.unused = torch.nn.Linear(4, 4)

    def training_step(self, batch, index):
        inputs, labels = batch
        loss = torch.nn.functional.cross_entropy(self.layers(inputs), labels)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, index):
        inputs, labels = batch
        wrong = (self.layers(inputs).argmax(1) != labels).float().mean()
        self.log("error_rate", wrong, prog_bar=True)
        self.log("failed_samples", 0.0)
        self.log("timeout", 0.0)

    def on_validation_end(self):
        try:
            {}["calibration"]
        except KeyError:
            logging.getLogger("metrics").exception("no calibration metric, it is left out")

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def data(size: int):
    inputs, labels = torch.randn(size, 16), torch.randint(0, 3, (size,))
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, labels), 16)


def main():
    folder = sys.argv[1]
    logging.basicConfig(level=logging.INFO)
    callbacks = [EarlyStopping("error_rate", patience=2, verbose=True), ModelCheckpoint(folder, monitor="error_rate", verbose=True)]
    trainer = lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp_find_unused_parameters_true", max_epochs=6, callbacks=callbacks,
        logger=[CSVLogger(folder), TensorBoardLogger(folder)], log_every_n_steps=2, profiler="simple",
    )
    trainer.fit(Classifier(), data(256), data(64))
    trainer.validate(dataloaders=data(64), ckpt_path="best", weights_only=False)


if __name__ == "__main__":
    main()
