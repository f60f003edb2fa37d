import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

export const sidebarPlugins: JupyterFrontEndPlugin<unknown>[] = [];
