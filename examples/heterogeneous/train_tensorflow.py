"""Train ResNet50 on all devices of a host while all other CPUs prepare the images, with tf.data.service.

All hosts use the same image and script. MirroredStrategy trains on the devices of one training host. If
mpirun starts the script, each rank trains on one device with Horovod, on one training host or several. Data
hosts prepare images with all their CPUs, and training hosts with the CPUs that their devices leave.
"""

import argparse
import contextlib
import os
import sys
import time

import hosts
import tensorflow as tf

DISPATCHER, WORKER = 6000, 6001

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100)
parser.add_argument("--warmup", type=int, default=20, help="steps without timing, which use queued batches")
parser.add_argument("--batch", type=int, default=64, help="images of each device and step")
parser.add_argument("--size", type=int, default=224, help="width and height of the images")
parser.add_argument("--rounds", type=int, default=4, help="JPEG compressions of each image")
parser.add_argument("--model", default="ResNet50", help="a model of tf.keras.applications")
parser.add_argument("--devices", type=int, default=1, help="devices of a host without GPUs")
arguments, _ = parser.parse_known_args()
SIDE = arguments.size * 8 // 7


def random_image(number):
    """Return one of 10,000 images for a job without channels."""
    return tf.random.stateless_uniform((SIDE, SIDE, 3), (number, 1), 0, 255), number % 10


def augment(image, label):
    """Return a distorted part of an image. The devices wait for this work."""
    image = tf.image.random_hue(image / 255, 0.05)
    for _ in range(arguments.rounds):
        image = tf.image.random_jpeg_quality(image, 60, 95)
    image = tf.image.random_crop(image, (arguments.size, arguments.size, 3))
    return tf.image.random_flip_left_right(image), label


def load_images():
    """Return batches for one device, which the data service prepares, and the number of classes."""
    data, classes = tf.data.Dataset.range(10_000).map(random_image, tf.data.AUTOTUNE), 10
    if folder := os.environ.get("SM_CHANNEL_TRAINING"):
        options = {"batch_size": None, "image_size": (SIDE, SIDE), "seed": 0}
        data = tf.keras.utils.image_dataset_from_directory(folder, **options)
        classes = len(data.class_names)
    if hvd and not hosts.DATA:
        # All ranks read the images in the order of the seed.
        data = data.shard(hvd.size(), hvd.rank())
    data = data.repeat().map(augment, tf.data.AUTOTUNE)
    data = data.batch(arguments.batch, drop_remainder=True)
    if hosts.DATA:
        service = tf.data.experimental.service.distribute(
            processing_mode=tf.data.experimental.service.ShardingPolicy.DYNAMIC,
            service=f"grpc://{hosts.DATA[0]}:{DISPATCHER}",
            job_name="training",
        )
        data = data.apply(service)
    return data.prefetch(8), classes


def start_loader():
    """Prepare images in this process. The first data host distributes the work."""
    service, first = tf.data.experimental.service, hosts.DATA[0]
    dispatcher = None
    if first == hosts.CURRENT:
        dispatcher = service.DispatchServer(service.DispatcherConfig(port=DISPATCHER))
    config = service.WorkerConfig(f"{first}:{DISPATCHER}", f"{hosts.CURRENT}:{WORKER}", port=WORKER)
    return dispatcher, service.WorkerServer(config)


def mirrored_strategy():
    if tf.config.list_physical_devices("GPU"):
        return tf.distribute.MirroredStrategy()
    [cpu] = tf.config.list_physical_devices("CPU")
    parts = [tf.config.LogicalDeviceConfiguration()] * arguments.devices
    tf.config.set_logical_device_configuration(cpu, parts)
    devices = [f"CPU:{number}" for number in range(arguments.devices)]
    # The devices are parts of one CPU, so one of them adds up the gradients.
    return tf.distribute.MirroredStrategy(devices, tf.distribute.ReductionToOneDevice())


def train(strategy):
    """Train on the devices of a strategy. Return the seconds after the first steps, and the loss."""
    data, classes = load_images()
    with strategy.scope():
        network = getattr(tf.keras.applications, arguments.model)
        model = network(weights=None, classes=classes, input_shape=(arguments.size, arguments.size, 3))
        optimizer = tf.keras.optimizers.SGD(0.01)
    weights = [variable.value for variable in model.trainable_variables]  # Horovod rejects Keras's own
    if hvd:
        hvd.broadcast_variables([variable.value for variable in model.variables], root_rank=0)

    def train_device(images, labels):
        with tf.GradientTape() as tape:
            losses = tf.keras.losses.sparse_categorical_crossentropy(labels, model(images, training=True))
            loss = tf.reduce_mean(losses) / strategy.num_replicas_in_sync
        if hvd:
            tape = hvd.DistributedGradientTape(tape)
        optimizer.apply(tape.gradient(loss, weights), model.trainable_variables)
        return loss

    @tf.function
    def train_step(batch):
        return strategy.reduce("SUM", strategy.run(train_device, batch), axis=None)

    batches = iter(data)
    for step in range(arguments.warmup + arguments.steps):
        if step == arguments.warmup:
            started = time.monotonic()
        # Each device gets a batch of its own.
        loss = train_step(strategy.experimental_distribute_values_from_function(lambda _: next(batches)))
        if step == 0:
            print(f"{hosts.CURRENT} trains", flush=True)
    # Wait for the devices of all ranks.
    loss = float(hvd.allreduce(loss) if hvd else loss)
    seconds = time.monotonic() - started
    if not hvd or hvd.rank() == 0:
        model.save(f"{os.environ['SM_MODEL_DIR']}/model.keras")
    return seconds, loss


hvd = None
if "OMPI_COMM_WORLD_RANK" in os.environ:
    import horovod.tensorflow as hvd

    hvd.init()
    gpus = tf.config.list_physical_devices("GPU")
    tf.config.set_visible_devices(gpus[hvd.local_rank() :][:1], "GPU")
if hosts.CURRENT in hosts.DATA:
    servers = start_loader()
    hosts.serve()
elif len(hosts.TRAINING) > 1 and not hvd:
    sys.exit("several training hosts need Horovod: enable `mpi` in `distribution`")
else:
    strategy = tf.distribute.get_strategy() if hvd else mirrored_strategy()
    devices = hvd.local_size() if hvd else strategy.num_replicas_in_sync
    with contextlib.nullcontext() if hvd and hvd.local_rank() else hosts.connect() as loaders:
        spare = hosts.loader_vcpus(devices)
        servers = start_loader() if hosts.DATA and spare and loaders else None
        seconds, loss = train(strategy)
    if not hvd or hvd.rank() == 0:
        values = {"loss": loss, "replicas": hvd.size() if hvd else devices}
        samples = values["replicas"] * arguments.batch
        hosts.write_result(seconds, arguments.steps, samples, loaders | {"localhost": spare}, **values)
