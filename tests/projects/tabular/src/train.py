"""Train one model per rank on its shard of the rows, and report the mean error of all ranks."""

import argparse
import os
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import xgboost
from mpi4py import MPI
from sklearn.metrics import mean_squared_error
from sklearn.model_selection import train_test_split


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=20)
    options, _ = parser.parse_known_args()
    ranks = MPI.COMM_WORLD
    rows = table(Path(os.environ.get("SM_CHANNEL_TRAINING", "/opt/ml/input/data/training")))
    shard = rows.iloc[ranks.rank :: ranks.size]
    train, test = train_test_split(shard, test_size=0.25, random_state=ranks.rank)
    model = xgboost.XGBRegressor(n_estimators=options.rounds, n_jobs=1)
    model.fit(train.drop(columns="target"), train["target"])
    error = mean_squared_error(test["target"], model.predict(test.drop(columns="target")))
    errors = ranks.allgather(float(error))
    if ranks.rank == 0:
        to = Path(os.environ["SM_MODEL_DIR"])
        mlflow.set_tracking_uri("sqlite:////tmp/mlflow.db")
        mlflow.log_metric("mean_squared_error", float(np.mean(errors)))
        model.save_model(to / "model.json")
        rows.head(100).to_parquet(to / "sample.parquet")
        print(f"trained on {ranks.size} ranks, error {np.mean(errors):.4f}", flush=True)


def table(directory: Path) -> pd.DataFrame:
    """Return the rows of all Parquet files in a directory; random ones without a file."""
    files = sorted(directory.glob("*.parquet"))
    if files:
        return pd.concat([pd.read_parquet(file) for file in files])
    random = np.random.default_rng(0)
    rows = pd.DataFrame(random.normal(size=(2000, 4)), columns=list("abcd"))
    return rows.assign(target=rows["a"] * rows["b"] + rows["c"])


if __name__ == "__main__":
    main()
