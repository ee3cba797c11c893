"""What `.env` says; a worker reads the same file, because it runs in the same folder."""

import os

from dotenv import load_dotenv

load_dotenv()
STAGE = os.environ["VISION_STAGE"]
