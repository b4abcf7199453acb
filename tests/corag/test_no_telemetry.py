"""Nothing that CORAG loads reports to anybody."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow


def test_the_encoder_loads_without_openvino_telemetry():
    program = (
        "import sys\n"
        "from corag.models.minilm import minilm_encoder\n"
        "minilm_encoder('openvino')\n"
        "assert not any(name.startswith('openvino_telemetry.') for name in sys.modules)\n"
        "assert sys.modules['openvino_telemetry'] is None\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_the_converter_of_openvino_is_there_when_it_is_asked_for():
    program = (
        "import sys\n"
        "from corag.models.devices import import_openvino\n"
        "openvino = import_openvino()\n"
        "assert import_openvino() is openvino and 'openvino.tools.ovc' not in sys.modules\n"
        "assert not hasattr(openvino, 'convert_models')\n"
        "from openvino import convert_model\n"
        "from openvino.tools.ovc import convert_model as same\n"
        "assert openvino.convert_model is convert_model is same\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
