#include <Python.h>

// Mean of the bytes of an image.
static PyObject *brightness(PyObject *, PyObject *image) {
    Py_buffer pixels;
    if (PyObject_GetBuffer(image, &pixels, PyBUF_SIMPLE) < 0) return nullptr;
    double sum = 0;
    for (Py_ssize_t i = 0; i < pixels.len; i++) sum += static_cast<unsigned char *>(pixels.buf)[i];
    double mean = pixels.len ? sum / pixels.len : 0;
    PyBuffer_Release(&pixels);
    return PyFloat_FromDouble(mean);
}

static PyMethodDef methods[] = {{"brightness", brightness, METH_O, "Mean of bytes"}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "vision_ops", nullptr, -1, methods, nullptr, nullptr, nullptr, nullptr};

PyMODINIT_FUNC PyInit_vision_ops() { return PyModule_Create(&module); }
