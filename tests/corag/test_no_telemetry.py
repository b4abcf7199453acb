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
