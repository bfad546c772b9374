"""What a run says about itself: report.json, report.html and the terminal, all from its journal."""
