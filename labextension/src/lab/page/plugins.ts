import type { JupyterFrontEndPlugin } from '@jupyterlab/application';

export const pagePlugins: JupyterFrontEndPlugin<unknown>[] = [];
