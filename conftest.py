"""For the tests of the gateway and of the backends alike."""

from hypothesis import settings

settings.register_profile("project", deadline=None)  # a busy machine is no failure
settings.load_profile("project")
