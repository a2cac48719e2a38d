// The functions of page.js that the program calls: what a page has in place of an operating system.
#pragma once

extern "C" {

// Starts the program again in a worker of the page: `arguments` is a JSON array, and files that it names go
// along. The worker's output comes back through jobs/browser/child_process.cpp, called with this number.
void page_start_worker(int worker, const char* arguments);
void page_end_worker(int worker);

void page_set_cursor(const char* css);
void page_copy(const char* text);
// Puts the JSON into the page's address, behind #.
void page_show_in_address(const char* json);
// Stores the files that must outlive the page; the page's next start has them again.
void page_keep_files();
// Hands a file to the user; asks the user for files, which are dropped on the window when they have
// arrived.
void page_save_file(const char* path);
void page_choose_files();
// Sends lines that the program writes to page_line() of child_process.cpp instead of the console.
void page_catch_lines(int yes);
// Reports a drawn frame: milliseconds to build its draw lists and to hand them to WebGL. Tests read them
// (Module.frames).
void page_drawn(double built, double handed_over);
// Before it draws, Dear ImGui asks WebGL for its state, to restore it afterwards. The GPU process answers
// some questions only once it has drawn all that it was given. The program alone draws there, so the initial
// state serves as the answer.
void page_draw_alone();
// Makes the canvas as large as the page and tells its size, in the device's pixels.
void page_fit_canvas(int* width, int* height, double* scale);
}
