"""Start the script of the host's instance group as a child, and end the data hosts after training."""

import socket
import subprocess
import sys
import time

from sagemaker_training import environment

DATA_GROUP = "données: A=1, «x» / $HOME"
DNN_GROUP = "dnn group 'two'"
SHUTDOWN_PORT = 16000


def start_child(script, *arguments):
    code = subprocess.run(["python", f"./{script}", *sys.argv[1:], *arguments], check=False).returncode
    print(f"{script} ended with {code}", flush=True)
    # The data host of gRPC kills itself, because its queue and its server have threads of their own
    return 0 if code in (-9, -15) else code


def first_host(groups, name):
    return groups[name]["hosts"][0]


def shut_down(host):
    for _ in range(30):
        try:
            with socket.create_connection((host, SHUTDOWN_PORT), timeout=5):
                print(f"asked {host} to end", flush=True)
                return
        except OSError as error:
            print(f"cannot reach {host}: {error}", flush=True)
            time.sleep(1)


def main():
    env = environment.Environment()
    if not env.is_hetero:
        return start_child("train_dnn.py")
    data_host = first_host(env.instance_groups_dict, DATA_GROUP)
    print(f"{env.current_host} is in {env.current_instance_group} on {env.current_instance_type}", flush=True)
    if env.current_instance_group == DATA_GROUP:
        return start_child("train_data.py", "--data-host", data_host)
    if env.current_instance_group != DNN_GROUP:
        raise SystemExit(f"unknown group {env.current_instance_group}")
    code = start_child("train_dnn.py", "--data-host", data_host)
    if env.current_host == first_host(env.instance_groups_dict, DNN_GROUP):
        shut_down(data_host)
    return code


if __name__ == "__main__":
    sys.exit(main())
