"""TensorFlow as the image has it."""


def installed() -> str:
    import tensorflow

    return str(tensorflow.__version__)


def check_multiplies() -> None:
    import tensorflow

    product = tensorflow.linalg.matvec(tensorflow.eye(3), [0.0, 1.0, 2.0])
    assert product.numpy().tolist() == [0.0, 1.0, 2.0]
