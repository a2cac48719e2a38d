// What page.js does for the program: what a page has in place of a system.
#pragma once

extern "C" {

// The program again, in a worker of the page's: `arguments` is a JSON array, and files that they name go
// along. What it says comes back by the functions of jobs/browser/child_process.cpp, called with this number.
void page_start_worker(int worker, const char* arguments);
void page_end_worker(int worker);

void page_set_cursor(const char* css);
void page_copy(const char* text);
// The part of the address behind #, as it was set by page_show_in_address().
void page_show_in_address(const char* json);
// Files that must outlive the page are there again at its next start.
void page_keep_files();
// A file is handed to the user; the user hands files over, which are dropped on the window when they are
// there.
void page_save_file(const char* path);
void page_choose_files();
// Lines that the program writes go to page_line() of child_process.cpp instead of the console.
void page_catch_lines(int yes);
// A frame was drawn: milliseconds of building its draw lists, and of handing them to WebGL. Tests read them
// (Module.frames).
void page_drawn(double built, double handed_over);
// Dear ImGui asks WebGL what was set before it draws, to set it again afterwards. The process of the GPU
// answers some of that, once it has drawn all that it was given; the program alone draws there, so that what
// was set at first does as well.
void page_draw_alone();
// Makes the canvas as large as the page and tells its size, in the device's pixels.
void page_fit_canvas(int* width, int* height, double* scale);
}
