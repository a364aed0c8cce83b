"""Train a model in parts on several GPUs."""

import smdistributed.modelparallel.torch as smp
import torch


@smp.step
def train_step(model, batch):
    loss = model(batch).square().mean()
    model.backward(loss)
    return loss


def main():
    smp.init()
    torch.cuda.set_device(smp.local_rank())
    layers = [torch.nn.Linear(64, 64) for _ in range(8)]
    model = smp.DistributedModel(torch.nn.Sequential(*layers))
    optimizer = smp.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    for _ in range(10):
        optimizer.zero_grad()
        loss = train_step(model, torch.rand(32, 64, device="cuda")).reduce_mean()
        optimizer.step()
    if smp.rank() == 0:
        print(f"loss {loss.item():.3f} on {smp.size()} ranks")


if __name__ == "__main__":
    main()
